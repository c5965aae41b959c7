// Where a save writes: a directory, or objects of a store. Nothing is seen there before Commit.
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

// What an object of a rank may hold on its way to a store: 16 requests of 8 MiB, and one that is being filled.
inline constexpr int64_t kUploadMemory = int64_t{136} << 20;

// The file of one rank, while it is written.
class SaveFile {
 public:
  virtual ~SaveFile() = default;
  // Every byte of the pieces once. From any number of threads, unless bytes have to come in order.
  virtual absl::Status WriteAt(int64_t at, std::string_view bytes) = 0;
  // A piece of the plan is written, and had these sums. As WriteAt.
  virtual absl::Status Note(size_t piece, const hash::ContentSums& sums) = 0;
  // Everything is written, and lasts.
  virtual absl::Status Finish() = 0;
};

// What all ranks save, and how it is cut.
struct SavePlan {
  const Catalog& catalog;
  output::OutputPlan& plan;  // a place may give its files other names
  const std::string& job;    // the same where the same tensors are saved in the same way to the same path
  int64_t rank = 0;
  bool overwrite = false;
};

// Calls are in this order. One rank, the coordinator, makes those that are its own; between any two all ranks agree.
class SavePlace {
 public:
  virtual ~SavePlace() = default;
  // Whether the bytes of a file have to come in ascending order, by one thread.
  virtual bool is_in_order() const = 0;

  // The coordinator's. AlreadyExists: there is something, and no `overwrite`.
  virtual absl::Status Begin() = 0;
  // Rank by rank: the file of that number in the plan, which has those pieces, ascending in it. A rank without one does
  // not call it.
  virtual absl::StatusOr<std::unique_ptr<SaveFile>> Create(int32_t file, absl::Span<const size_t> pieces) = 0;
  // The coordinator's, when all ranks have finished their files: the checkpoint appears.
  virtual absl::Status Commit() = 0;
  // In place of what is left of these, after an error. The coordinator's. `all_ended`: no rank writes any more.
  virtual void Abandon(bool all_ended) = 0;
};

// Of a directory that all ranks see. Errors as io::StagedDirectory::StageOf.
absl::StatusOr<std::unique_ptr<SavePlace>> PlaceInDirectory(const std::string& path, const SavePlan& saved);

// At a URL of a store that is for writing. The coordinator leaves an attempt's text in the job's folder
// (into_store/store_job.h), with the names of the files, which are other ones where something is replaced; all ranks
// read both. An object is written as its bytes come (kUploadMemory).
// Errors as stores::DestinationAt.
absl::StatusOr<std::unique_ptr<SavePlace>> PlaceInStore(const std::string& url, const SavePlan& saved);

}  // namespace reshard::live

#endif  // RESHARD_CHECKPOINT_LIVE_SAVE_PLACE_H_
