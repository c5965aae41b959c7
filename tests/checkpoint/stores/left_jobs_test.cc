// What a killed run has left in a store is removed, and the checkpoint that is there stays: at whichever call it was
// killed.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/convert.h"
#include "reshard/checkpoint/leavings.h"
#include "reshard/checkpoint/store.h"
#include "reshard/checkpoint/verify.h"
#include "tests/catch.h"
#include "tests/checkpoint/convert/convert_place.h"
#include "tests/checkpoint/stores/failing_shelf.h"

namespace reshard {
namespace {

constexpr char kUrl[] = "shelf://a/dst";

// Whether the checkpoint in the store is what `options` make of the source.
bool Is(const std::string& source, const ConvertOptions& options) {
  VerifyOptions compare;
  compare.recipe.selection = options.recipe.selection;
  const absl::StatusOr<VerifyReport> report = VerifyCheckpoints(source, kUrl, compare);
  return report.ok() && report->differences.empty();
}

// What one run that fails at call `at` leaves, cleaned up; false where it did not fail.
bool RunAndClean(const std::string& source, CheckpointFormat format, bool replaces, int64_t at) {
  const std::string first(ReadCatalog(source, {})->tensors()[0].name);
  const auto shelf = std::make_shared<testing::FailingShelf>();
  RegisterStore("shelf", shelf);
  ConvertOptions options;
  options.format = format;
  options.file_bytes = 200;
  options.threads = 1;
  options.recipe.selection.byte_items = false;
  ConvertOptions of_old = options;
  of_old.recipe.selection.exclude = {first};
  if (replaces) REQUIRE(Convert(source, kUrl, testing::RulesInStore(format), of_old).ok());
  const std::vector<std::string> before = shelf->Names();
  options.overwrite = replaces;
  shelf->FailAt(at, true);
  Convert(source, kUrl, testing::RulesInStore(format), options).status().IgnoreError();
  const bool failed = shelf->failed();
  shelf->FailAt(testing::kNever, false);
  for (const std::string& name : shelf->Names()) {  // of a process that lives no more
    if (absl::StrContains(name, "/beat-")) CHECK(shelf->Delete(name).ok());
  }
  CHECK(RemoveStaleStaging(kUrl).ok());
  if (!Is(source, options)) {
    if (replaces) {
      CHECK(Is(source, of_old));
    } else {
      CHECK(shelf->Names() == before);
    }
  }
  RegisterStore("shelf", nullptr);
  return failed;
}

TEST_CASE("a killed run in a store is cleaned up, whatever it was doing: the old checkpoint, the new one, or nothing") {
  const testing::ConvertSource source;
  for (const CheckpointFormat format :
       {CheckpointFormat::kDcp, CheckpointFormat::kSafetensors, CheckpointFormat::kOrbax}) {
    for (const bool replaces : {false, true}) {
      if (replaces && format == CheckpointFormat::kOrbax) continue;  // which is refused
      int64_t at = 0;
      for (bool failed = true; failed; ++at) {
        INFO(Name(format) << (replaces ? ", replaced" : "") << ", call " << at);
        failed = RunAndClean(source.path(), format, replaces, at);
      }
      CHECK(at > 10);
    }
  }
}

}  // namespace
}  // namespace reshard
