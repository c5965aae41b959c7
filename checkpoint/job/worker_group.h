// The processes that do one job together, by what they leave in the stage (checkpoint/io/staged_directory.h):
//
//   STAGE/journal-K    the pieces that worker K has written
//   STAGE/done-K       its whole share is on the disk; holds the terms, under others it says nothing
//   STAGE/beat-K       another text whenever worker K has got on
//   STAGE/finish       locked by who writes the last files and commits
#ifndef RESHARD_CHECKPOINT_JOB_WORKER_GROUP_H_
#define RESHARD_CHECKPOINT_JOB_WORKER_GROUP_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "checkpoint/io/file_lock.h"
#include "checkpoint/io/staged_directory.h"

namespace reshard {

class WorkerGroup {
 public:
  WorkerGroup(const StagedDirectory& stage, std::string terms, int64_t worker, int64_t workers, absl::Duration patience)
      : stage_(stage), terms_(std::move(terms)), worker_(worker), workers_(workers), patience_(patience) {}

  bool alone() const { return workers_ == 1; }
  std::string JournalOf(int64_t worker) const;

  absl::StatusOr<bool> IsDone(int64_t worker) const;
  // Durable. What was done is to be durable before.
  absl::Status MarkDone() const;
  absl::Status TakeBackDone() const;

  // Tells the others that this one gets on; about once a second is enough, and more is left out. From any thread.
  void Beat();

  // Waits until all are done, and then gives the lock of who is to finish and commit now. Null: the stage is no longer
  // there, another one has finished. DeadlineExceeded: nobody has got on for as long as the patience lasts (who is not
  // done). `waiting_for` is told how many are not done, when that has changed.
  absl::StatusOr<std::unique_ptr<FileLock>> WaitForAll(const std::function<void(int64_t)>& waiting_for) const;

 private:
  std::string Path(const char* what, int64_t worker) const;
  absl::StatusOr<std::string> Beats() const;
  absl::Status NobodyGetsOn(const std::vector<int64_t>& missing) const;

  const StagedDirectory& stage_;
  const std::string terms_;
  const int64_t worker_, workers_;
  const absl::Duration patience_;
  std::mutex mutex_;
  int64_t beats_ = 0;                             // guarded by mutex_
  std::chrono::steady_clock::time_point beaten_;  // guarded by mutex_
};

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_JOB_WORKER_GROUP_H_
