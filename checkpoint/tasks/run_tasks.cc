#include "checkpoint/tasks/run_tasks.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "checkpoint/io/error_kind.h"
#include "status/share_tasks.h"

namespace reshard::tasks {

int ThreadCount(int asked, int most) {
  if (asked > 0) return asked;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, most);
}

absl::Status Stopped() { return io::FromSystem(absl::CancelledError("it was asked to stop")); }

int WaitingThreads(int threads, int64_t tasks) {
  constexpr int64_t kMany = 256;
  constexpr int kAtOnce = 32;
  return tasks < kMany ? threads : std::max(threads, kAtOnce);
}

absl::Status RunTasks(int64_t count, int threads, const std::function<absl::Status(int64_t, int)>& task,
                      const std::stop_token& stop) {
  return status::ShareTasks("working on a checkpoint", count, threads,
                            [&](int64_t i, int thread) { return stop.stop_requested() ? Stopped() : task(i, thread); });
}

ProgressMeter::ProgressMeter(int64_t total, std::function<void(const ConvertProgress&)> report)
    : total_(total), report_(std::move(report)), start_(std::chrono::steady_clock::now()), last_(start_) {}

void ProgressMeter::Add(int64_t bytes) {
  done_.fetch_add(bytes, std::memory_order_relaxed);
  if (!report_) return;
  if (!mutex_.TryLock()) return;
  const status::MutexLock lock(mutex_, std::adopt_lock);
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::milliseconds(200)) return;
  Report(now);
}

void ProgressMeter::Finish() {
  if (!report_) return;
  const status::MutexLock lock(mutex_);
  Report(std::chrono::steady_clock::now());
}

void ProgressMeter::Report(std::chrono::steady_clock::time_point now) {
  last_ = now;
  const std::chrono::duration<double> seconds = now - start_;
  report_({done_.load(std::memory_order_relaxed), total_, seconds.count()});
}

}  // namespace reshard::tasks
