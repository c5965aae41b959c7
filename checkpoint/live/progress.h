// How far a load or a save of this rank is: its threads count, and the thread that was called tells.
#ifndef RESHARD_CHECKPOINT_LIVE_PROGRESS_H_
#define RESHARD_CHECKPOINT_LIVE_PROGRESS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <stop_token>

#include "absl/status/status.h"
#include "reshard/checkpoint/progress.h"

namespace reshard::live {

class Progress {
 public:
  // Tells of `total` bytes, in the measure in which the `work` bytes are done that are counted. Without `tell` nothing
  // is told.
  Progress(int64_t total, int64_t work, const TellProgress& tell);

  // From any thread.
  void Add(int64_t work) { done_.fetch_add(work, std::memory_order_relaxed); }
  // Ends the work soon after telling had an error.
  std::stop_token stop() const { return stop_.get_token(); }

  // These tell from the thread that calls them, and return the error of telling. The beginning, and the end: `done` is
  // 0, and `total`.
  absl::Status Begin();
  absl::Status End();
  // Waits for `work`, which looks at stop(), and tells a few times a second. Takes its result: it is no longer valid.
  absl::Status Await(std::future<absl::Status>& work);
  // Does `work`, which looks at stop(): as Await, on a thread of its own if there is somebody to tell.
  absl::Status During(const std::function<absl::Status()>& work);

 private:
  absl::Status Tell(int64_t done);
  absl::Status TellWhatIsDone();

  const int64_t total_;
  const int64_t work_;
  const TellProgress& tell_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_ = start_;
  std::atomic<int64_t> done_{0};  // of work_
  std::stop_source stop_;
};

}  // namespace reshard::live

#endif  // RESHARD_CHECKPOINT_LIVE_PROGRESS_H_
