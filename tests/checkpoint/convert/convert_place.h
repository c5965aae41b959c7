// A small conversion, run again and again in directories of its own, and what must hold whatever befalls it.
#ifndef RESHARD_TESTS_CHECKPOINT_CONVERT_CONVERT_PLACE_H_
#define RESHARD_TESTS_CHECKPOINT_CONVERT_CONVERT_PLACE_H_

#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "reshard/checkpoint/convert.h"
#include "tests/checkpoint/io/staged_job.h"
#include "tests/checkpoint/io/temp_directory.h"

namespace reshard::testing {

// What a result of that format in a store is cut by.
inline std::optional<LayoutRules> RulesInStore(CheckpointFormat format) {
  if (format != CheckpointFormat::kDcp) return std::nullopt;
  return *LayoutRules::ForAll("{a:2}", "[...]");
}

struct ConvertCase {
  CheckpointFormat format = CheckpointFormat::kDcp;
  bool has_old = false;  // something at the destination, to be replaced
  int threads = 1;
  bool has_recipe = false;  // tensors that are made of those of the source
};

// A copy of a fixture, and what its conversion gives when nothing goes wrong: compared with the source tensor by
// tensor, element by element.
class ConvertSource {
 public:
  ConvertSource();
  std::string path() const { return directory_ / "source"; }
  Content Expected(const ConvertCase& what) const;
  bool IsUnchanged() const { return ContentAt(path()) == content_; }

 private:
  TempDirectory directory_{TempDirectory::Where::kInMemory};
  Content content_;
};

class ConvertPlace {
 public:
  ConvertPlace(const ConvertSource& source, Content expected, const ConvertCase& what);

  std::string destination() const { return directory_ / "dst"; }
  // What later runs listen to.
  void StopBy(std::stop_token stop) { stop_ = std::move(stop); }
  // Through the current system. Several workers wait for each other for a moment only, unless told otherwise.
  absl::StatusOr<ConvertSummary> Run(bool resume, int64_t workers = 1, int64_t worker = 0,
                                     absl::Duration stall_timeout = absl::Milliseconds(1)) const;
  // Files of what was begun: as they are called in the result -> path.
  std::map<std::string, std::string> Staged() const;

  bool IsComplete() const { return ContentAt(destination()) == expected_; }
  bool IsAsBefore() const;
  bool IsClean() const { return NamesIn(directory_.path()) == std::vector<std::string>{"dst"}; }

 private:
  const ConvertSource& source_;
  const Content expected_;
  const ConvertCase what_;
  std::stop_token stop_;
  TempDirectory directory_{TempDirectory::Where::kInMemory};
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_CHECKPOINT_CONVERT_CONVERT_PLACE_H_
