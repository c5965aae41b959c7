#include "checkpoint/tasks/run_tasks.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/io/error_kind.h"
#include "status/no_throw.h"

namespace reshard::tasks {

int ThreadCount(int asked, int most) {
  if (asked > 0) return asked;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, most);
}

absl::Status Stopped() { return io::FromSystem(absl::CancelledError("it was asked to stop")); }

absl::Status RunTasks(int64_t count, int threads, const std::function<absl::Status(int64_t, int)>& task,
                      const std::stop_token& stop) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> failing{false};
  status::Mutex mutex;
  int64_t failed = count;
  absl::Status first;
  const auto serve = [&](int thread) {
    while (!failing.load(std::memory_order_relaxed)) {
      const int64_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= count) return;
      const absl::Status status = status::NoThrow("working on a checkpoint",
                                                  [&] { return stop.stop_requested() ? Stopped() : task(i, thread); });
      if (status.ok()) continue;
      failing = true;
      const status::MutexLock lock(mutex);
      if (i < failed) {
        failed = i;
        first = status;
      }
    }
  };
  std::vector<std::thread> helpers;
  const auto used = static_cast<int>(std::min<int64_t>(threads, std::max<int64_t>(1, count)));
  try {
    for (int t = 1; t < used; ++t) helpers.emplace_back(serve, t);
  } catch (const std::exception&) {
    // Fewer threads do as well.
  }
  serve(0);
  for (std::thread& helper : helpers) helper.join();
  return first;
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
