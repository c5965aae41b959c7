// The processes that share one job, which communicate through files in the stage (checkpoint/io/staged_directory.h):
//
//   STAGE/journal-K    the pieces that worker K has written
//   STAGE/done-K       says that worker K's whole share is on disk; has the terms, and is void under other terms
//   STAGE/beat-K       a text that changes whenever worker K has made progress
//   STAGE/finish       locked by the worker that writes the last files and commits
#ifndef RESHARD_CHECKPOINT_CONVERT_WORKER_GROUP_H_
#define RESHARD_CHECKPOINT_CONVERT_WORKER_GROUP_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "checkpoint/io/file_lock.h"
#include "checkpoint/io/staged_directory.h"
#include "status/mutex.h"

namespace reshard::convert {

class WorkerGroup {
 public:
  WorkerGroup(const io::StagedDirectory& stage, std::string terms, int64_t worker, int64_t workers,
              absl::Duration stall_timeout)
      : stage_(stage), terms_(std::move(terms)), worker_(worker), workers_(workers), stall_timeout_(stall_timeout) {}

  bool alone() const { return workers_ == 1; }
  std::string JournalOf(int64_t worker) const;

  absl::StatusOr<bool> IsDone(int64_t worker) const;
  // Marks this worker's share as done, durably. The share itself must be durable before.
  absl::Status MarkDone() const;
  absl::Status TakeBackDone() const;

  // Tells the others that this worker makes progress. About once per second is enough, and further calls do nothing.
  // Thread-safe.
  void Heartbeat();

  // Waits until all workers are done, and then returns the lock of the one that is to finish and commit. Null: the
  // stage is gone, because another worker has finished. DeadlineExceeded: no worker has made progress within the stall
  // timeout; the message says which are not done. `waiting_for` is called with the number of those not done whenever it
  // changes. Cancelled: `stop` asked for that.
  absl::StatusOr<std::unique_ptr<io::FileLock>> WaitForAll(const std::function<void(int64_t)>& waiting_for,
                                                           const std::stop_token& stop = {}) const;

 private:
  std::string Path(const char* what, int64_t worker) const;
  absl::StatusOr<std::string> Heartbeats() const;
  absl::Status NobodyGetsOn(const std::vector<int64_t>& missing) const;

  const io::StagedDirectory& stage_;
  const std::string terms_;
  const int64_t worker_, workers_;
  const absl::Duration stall_timeout_;
  status::Mutex mutex_;
  int64_t heartbeats_ ABSL_GUARDED_BY(mutex_) = 0;
  std::chrono::steady_clock::time_point last_heartbeat_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reshard::convert

#endif  // RESHARD_CHECKPOINT_CONVERT_WORKER_GROUP_H_
