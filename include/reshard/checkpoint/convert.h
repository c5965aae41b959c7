// Rewrites a checkpoint in another layout or format, without loading it: pieces of every tensor are read, put together
// and written, a few at a time.
//
// The source is only read. The result appears at once and complete, or not at all (checkpoint/io/staged_directory.h
// says how); what exists is not touched unless it may be replaced.
#ifndef RESHARD_CHECKPOINT_CONVERT_H_
#define RESHARD_CHECKPOINT_CONVERT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/rules.h"

namespace reshard {

struct ConvertProgress {
  int64_t done = 0;   // bytes of contents written
  int64_t total = 0;  // bytes of contents in all
  double seconds = 0.0;
};

struct ConvertOptions {
  CheckpointFormat format = CheckpointFormat::kDcp;
  // Of buffers, the catalog and the new metadata together.
  int64_t memory_limit = int64_t{1} << 30;
  int threads = 0;  // 0: one a core
  bool overwrite = false;
  // Goes on where an interrupted run of the same job stopped. What it had written is read and compared first.
  bool resume = false;
  // Reads the result and compares it with the source before it is put in its place.
  bool verify = false;
  bool ignore_sidecar = false;
  // safetensors: the most bytes of tensors in one file, unless one tensor alone has more.
  int64_t file_bytes = int64_t{5} << 30;
  CatalogLimits limits;
  // Called about five times a second by one of the threads at work.
  std::function<void(const ConvertProgress&)> progress;
};

struct ConvertSummary {
  int64_t tensors = 0;
  int64_t byte_items = 0;
  int64_t pieces = 0;
  int64_t bytes = 0;  // of contents
  int64_t files = 0;
  int64_t disk_bytes = 0;    // of all files
  int64_t free_bytes = 0;    // on the filesystem of the destination, before
  int64_t memory_bytes = 0;  // planned: at most the limit
  int64_t read_bytes = 0;    // from the source's files of contents, all that was read
  int64_t kept_bytes = 0;    // of contents, from an interrupted run
  double seconds = 0.0;
  bool was_complete = false;  // resumed, and there was nothing left to do
  // What the target format cannot hold: "name: reason". The rest was written.
  std::vector<std::string> left_out;
};

// Why a conversion was refused or failed; decides the exit code of the command.
enum class CheckpointError {
  kInput,        // the source, the rules, or what they ask for
  kMemoryLimit,  // does not fit in memory_limit
  kSystem,       // the operating system: files, disk space, something at the destination
  kInternal,
};
CheckpointError KindOf(const absl::Status& status);

// What Convert would do, and whether it could: reads the source's metadata, writes nothing.
absl::StatusOr<ConvertSummary> PlanConversion(const std::string& source, const std::string& destination,
                                              const std::optional<LayoutRules>& rules, const ConvertOptions& options);

// Rewrites. `rules` say how tensors are cut; safetensors holds each tensor whole, and needs none.
// AlreadyExists: something at the destination. ResourceExhausted: the memory limit (bytes needed and allowed), or the
// disk. DataLoss: the source is damaged. Otherwise as ReadCatalog and LayoutRules::LayoutFor.
// After an error the destination is as it was; what was written so far is kept beside it for `resume` where the error
// was one of the system, and removed otherwise.
absl::StatusOr<ConvertSummary> Convert(const std::string& source, const std::string& destination,
                                       const std::optional<LayoutRules>& rules, const ConvertOptions& options);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_CONVERT_H_
