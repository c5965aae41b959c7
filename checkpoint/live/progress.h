// Progress of a load or save on this rank: its threads count the work that is done, and the calling thread tells.
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
  // Tells how many of `total` bytes are done, in proportion to how many of the `work` bytes Add has counted. Tells
  // nothing if `tell` is empty.
  Progress(int64_t total, int64_t work, const TellProgress& tell);

  // From any thread.
  void Add(int64_t work) { done_.fetch_add(work, std::memory_order_relaxed); }
  // Asks the work to stop once `tell` has returned an error.
  std::stop_token stop() const { return stop_.get_token(); }

  // These tell from the calling thread, and return the error of `tell`. Begin tells that 0 bytes are done, End that
  // `total` are.
  absl::Status Begin();
  absl::Status End();
  // Waits for `work`, which looks at stop(), and tells a few times a second. Takes the result of `work`, which is then
  // no longer valid.
  absl::Status Await(std::future<absl::Status>& work);
  // Runs `work`, which looks at stop(), and tells as Await does. It runs on a thread of its own unless `tell` is empty.
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
