// Threads that share a list of tasks.
#ifndef RESHARD_STATUS_SHARE_TASKS_H_
#define RESHARD_STATUS_SHARE_TASKS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "status/mutex.h"
#include "status/no_throw.h"

namespace reshard::status {

// Calls task(i, thread) once for each i in [0, count), smallest first, on at most `threads` threads, including the
// caller's. After an error no further task is begun. Returns the error of the smallest i that had one; NoThrow turns an
// exception in a task into an error.
template <typename Task>
absl::Status ShareTasks(absl::string_view doing, int64_t count, int64_t threads, const Task& task) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> failing{false};
  Mutex mutex;
  int64_t failed = count;
  absl::Status first;
  const auto serve = [&](int thread) {
    while (!failing.load(std::memory_order_relaxed)) {
      const int64_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= count) return;
      const absl::Status done = NoThrow(doing, [&]() -> absl::Status { return task(i, thread); });
      if (done.ok()) continue;
      failing = true;
      const MutexLock lock(mutex);
      if (i < failed) {
        failed = i;
        first = done;
      }
    }
  };
  std::vector<std::thread> helpers;
  const auto used = static_cast<int>(std::min(threads, std::max<int64_t>(1, count)));
  try {
    for (int t = 1; t < used; ++t) helpers.emplace_back(serve, t);
  } catch (const std::exception&) {
    // Fewer threads will do.
  }
  serve(0);
  for (std::thread& helper : helpers) helper.join();
  return first;
}

}  // namespace reshard::status

#endif  // RESHARD_STATUS_SHARE_TASKS_H_
