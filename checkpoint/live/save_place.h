// Where a save writes: a directory, or objects of a store. Nothing is visible there before Commit.
#ifndef RESHARD_CHECKPOINT_LIVE_SAVE_PLACE_H_
#define RESHARD_CHECKPOINT_LIVE_SAVE_PLACE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/hash/content_sums.h"
#include "checkpoint/hash/hash.h"
#include "checkpoint/output/output_plan.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::live {

// Bytes that a rank's object may hold in memory during its upload: 16 requests of 8 MiB, and one that is being filled.
inline constexpr int64_t kUploadMemory = int64_t{136} << 20;

// The file of one rank, while it is written.
class SaveFile {
 public:
  virtual ~SaveFile() = default;
  // Writes each byte of the pieces once. From any number of threads, unless bytes have to come in order.
  virtual absl::Status WriteAt(int64_t at, std::string_view bytes) = 0;
  // Records that a piece of the plan is written, and its checksums. From the same threads as WriteAt.
  virtual absl::Status Note(size_t piece, const hash::ContentSums& sums) = 0;
  // Ends the file: everything is written, and lasts.
  virtual absl::Status Finish() = 0;
};

// What all ranks save, and how it is cut.
struct SavePlan {
  const Catalog& catalog;
  output::OutputPlan& plan;  // a place may give its files other names
  const std::string& job;    // the same if the same tensors are saved in the same way to the same path
  int64_t rank = 0;
  bool overwrite = false;
};

// Calls come in this order. One rank, the coordinator, makes the calls that are its own; between any two calls all
// ranks agree.
class SavePlace {
 public:
  virtual ~SavePlace() = default;
  // Whether the bytes of a file have to come in ascending order, by one thread.
  virtual bool is_in_order() const = 0;

  // The coordinator's. Begins the save. AlreadyExists: there is something, and no `overwrite`.
  virtual absl::Status Begin() = 0;
  // Every rank's: creates the plan's file with that number, which has these pieces, ascending in it. A rank without a
  // file does not call it.
  virtual absl::StatusOr<std::unique_ptr<SaveFile>> Create(int32_t file, absl::Span<const size_t> pieces) = 0;
  // The coordinator's, once all ranks have finished their files: the checkpoint appears.
  virtual absl::Status Commit() = 0;
  // The coordinator's, after an error, in place of the remaining calls. `all_ended`: no rank is still writing.
  virtual void Abandon(bool all_ended) = 0;
};

// A place in a directory that all ranks see. Errors as io::StagedDirectory::StageOf.
absl::StatusOr<std::unique_ptr<SavePlace>> PlaceInDirectory(const std::string& path, const SavePlan& saved);

// A place at a URL of a writable store. The coordinator puts the attempt's text and the names of the files into the
// job's folder (into_store/store_job.h), and all ranks read both. The files get other names if something is replaced.
// An object is uploaded as its bytes come (kUploadMemory).
// Errors as stores::DestinationAt.
absl::StatusOr<std::unique_ptr<SavePlace>> PlaceInStore(const std::string& url, const SavePlan& saved);

}  // namespace reshard::live

#endif  // RESHARD_CHECKPOINT_LIVE_SAVE_PLACE_H_
