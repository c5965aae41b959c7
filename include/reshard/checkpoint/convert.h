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
#include "absl/time/time.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/rules.h"

namespace reshard {

struct ConvertProgress {
  int64_t done = 0;   // bytes of contents written by this worker
  int64_t total = 0;  // that it has to write
  double seconds = 0.0;
  int64_t waiting_for = 0;  // workers that are not done, where this one is
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
  // Several processes, on one machine or on many that share the filesystems of source and destination (with locks,
  // flock, that they all see), may do one job together. Each is called with the same arguments but for `worker`, 0 to
  // workers - 1, in any order and at any time; each writes its share of the bytes; who is done last puts the result in
  // its place, and the others wait for that. They always go on from what is there, as with `resume`, which one of them
  // may have begun a moment ago; also from what another number of workers left, when none of them lives.
  int64_t workers = 1;
  int64_t worker = 0;
  // How long a worker that is done waits while none of the others gets on.
  absl::Duration patience = absl::Minutes(10);
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
  int64_t bytes = 0;       // of contents
  int64_t own_pieces = 0;  // of these, the share of this worker
  int64_t own_bytes = 0;
  int64_t files = 0;
  int64_t disk_bytes = 0;    // of all files
  int64_t free_bytes = 0;    // on the filesystem of the destination, before
  int64_t memory_bytes = 0;  // planned: at most the limit
  int64_t read_bytes = 0;    // from the source's files of contents, all that was read
  int64_t kept_bytes = 0;    // of contents, from an interrupted run
  double seconds = 0.0;
  bool was_complete = false;  // resumed, and there was nothing left to do
  bool committed = false;     // this worker has put the result in its place
  // What the target format cannot hold: "name: reason". The rest was written.
  std::vector<std::string> left_out;
};

// Why a conversion was refused or failed; decides the exit code of the command.
enum class CheckpointError {
  kInput,        // the source, the rules, or what they ask for
  kMemoryLimit,  // does not fit in memory_limit
  kSystem,       // the operating system: files, disk space, something at the destination
  kPeer,         // other workers did not come to their end
  kInternal,
};
CheckpointError KindOf(const absl::Status& status);

// What Convert would do, and whether it could: reads the source's metadata, writes nothing.
absl::StatusOr<ConvertSummary> PlanConversion(const std::string& source, const std::string& destination,
                                              const std::optional<LayoutRules>& rules, const ConvertOptions& options);

// Rewrites. `rules` say how tensors are cut; safetensors holds each tensor whole, and needs none.
// AlreadyExists: something at the destination. ResourceExhausted: the memory limit (bytes needed and allowed), or the
// disk. DataLoss: the source is damaged. Otherwise as ReadCatalog and LayoutRules::LayoutFor.
// FailedPrecondition: a living process does the same; the source was written to meanwhile. DeadlineExceeded: `patience`
// is over (which workers are missing); what is written stays.
// After an error the destination is as it was; what was written so far is kept beside it for `resume` where the error
// was one of the system, and removed otherwise.
absl::StatusOr<ConvertSummary> Convert(const std::string& source, const std::string& destination,
                                       const std::optional<LayoutRules>& rules, const ConvertOptions& options);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_CONVERT_H_
