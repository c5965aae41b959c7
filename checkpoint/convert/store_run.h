// One run of a conversion whose destination is a URL: objects are written as they will stay, and what makes
// them a checkpoint is written last.
#ifndef RESHARD_CHECKPOINT_CONVERT_STORE_RUN_H_
#define RESHARD_CHECKPOINT_CONVERT_STORE_RUN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "checkpoint/convert/conversion.h"
#include "checkpoint/hash/hash.h"
#include "checkpoint/into_store/commit.h"
#include "checkpoint/into_store/occupancy.h"
#include "checkpoint/into_store/store_job.h"
#include "checkpoint/tasks/run_tasks.h"
#include "reshard/checkpoint/store.h"

namespace reshard::convert {

// The order in which things appear, each of which may be the last one that happens:
//
//   1  DESTINATION/.reshard-JOB/job, with the names of all that follow.
//   2  Auxiliary files, unless something may be replaced.
//   3  The objects with contents, each with a record of it. A later run of the job keeps those whose records are right.
//      With --overwrite they have names of their own, and what is replaced stays whole; auxiliary files, which keep
//      their names, come now.
//   4  reshard.json, and then .metadata or the index: the instant at which the checkpoint is there. What is replaced
//      loses its reshard.json before that instant, and the result gets its own after it: each is whole all the time.
//   5  What was replaced is removed, and finally the folder of the job.
class StoreRun {
 public:
  StoreRun(Conversion* conversion, std::shared_ptr<Store> store);

  // Whether the result is there already. Called once, before Do or TidyUp.
  absl::StatusOr<bool> IsComplete();
  // Errors as Convert. After an error that another try would meet again, nothing that was written is left.
  absl::Status Do();
  // For a result that is complete: step 5.
  absl::Status TidyUp();

 private:
  std::string UrlOf(std::string_view name) const;
  absl::Status Enter();
  absl::Status WriteAll();
  absl::Status Abandon();
  absl::Status Delete(absl::Span<const std::string> names) const;
  into_store::Target target() const { return {*store_, conversion_.destination, job_}; }
  absl::Status WriteMissing();
  // The order in which this worker takes objects, beginning with its own; and whether an object is its own.
  std::vector<int64_t> InOrder(const std::vector<int64_t>& objects) const;
  bool IsOwn(int64_t object) const;
  absl::StatusOr<bool> Finish();
  absl::StatusOr<bool> Gather();
  // FailedPrecondition: it has been written to.
  absl::Status CheckSource() const;
  absl::Status ReadBack(int64_t object);
  absl::Status Commit();
  absl::Status AwaitCommit();
  absl::Status CopySideFiles();
  int64_t Objects() const { return static_cast<int64_t>(pieces_.size()); }

  Conversion& conversion_;
  const ConvertOptions& options_;
  const std::shared_ptr<Store> store_;
  const into_store::StoreJob job_;
  tasks::ProgressMeter meter_;
  std::vector<std::pair<int64_t, int64_t>> pieces_;  // [first, end) of each object
  std::vector<hash::ContentHash> hashes_;            // of the plan's pieces
  absl::StatusOr<into_store::Occupancy> place_;      // as IsComplete found it
  bool is_over_ = false;                             // another worker has completed the result
  bool copied_ = false;                              // auxiliary files, by this run
  bool is_new_ = false;                              // no other run has written or writes anything of the job
  std::vector<char> own_claims_;                     // of this run, by object
  std::vector<into_store::ObjectRecord> records_;    // of what this run has written, by object
};

}  // namespace reshard::convert

#endif  // RESHARD_CHECKPOINT_CONVERT_STORE_RUN_H_
