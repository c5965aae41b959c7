// Threads that share a list of tasks, and reports on their progress.
#ifndef RESHARD_CHECKPOINT_TASKS_RUN_TASKS_H_
#define RESHARD_CHECKPOINT_TASKS_RUN_TASKS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <stop_token>

#include "absl/status/status.h"
#include "reshard/checkpoint/progress.h"
#include "status/mutex.h"

namespace reshard::tasks {

// What was asked for, or the number of cores where that is 0, but then no more than `most`.
int ThreadCount(int asked, int most = std::numeric_limits<int>::max());

// For so many tasks that wait for a disk most of the time: `threads` where they are few; where they are many, enough
// that filesystems bring them to the disk together.
int WaitingThreads(int threads, int64_t tasks);

// Calls task(i, thread) for i in 0..count, each once, on `threads` threads, smallest first. After an error no further
// task is begun. The error of the smallest i that had one. An exception in a task is Internal, or ResourceExhausted
// where memory ran out. Once `stop` asks for it no further task is begun: Cancelled, as an error of the system.
absl::Status RunTasks(int64_t count, int threads, const std::function<absl::Status(int64_t task, int thread)>& task,
                      const std::stop_token& stop = {});

// What an operation that was asked to stop returns.
absl::Status Stopped();

// Adds up what is done and tells of it, now and then. From any thread.
class ProgressMeter {
 public:
  ProgressMeter(int64_t total, std::function<void(const ConvertProgress&)> report);
  void Add(int64_t bytes);
  // The last word.
  void Finish();

 private:
  void Report(std::chrono::steady_clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t total_;
  const std::function<void(const ConvertProgress&)> report_;
  const std::chrono::steady_clock::time_point start_;
  std::atomic<int64_t> done_{0};
  status::Mutex mutex_;
  std::chrono::steady_clock::time_point last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reshard::tasks

#endif  // RESHARD_CHECKPOINT_TASKS_RUN_TASKS_H_
