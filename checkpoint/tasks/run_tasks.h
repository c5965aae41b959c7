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

// `asked`; if that is 0, the number of cores, but no more than `most`.
int ThreadCount(int asked, int most = std::numeric_limits<int>::max());

// Number of threads for tasks that mostly wait for a disk: `threads` if there are few tasks; if there are many, enough
// that filesystems bring them to the disk together.
int WaitingThreads(int threads, int64_t tasks);

// Calls task(i, thread) for i in 0..count, each once, on `threads` threads, lowest i first. After an error no further
// task is begun. The error of the lowest i that had one. An exception in a task is Internal, or ResourceExhausted
// where memory ran out. Once `stop` asks for it no further task is begun: Cancelled, as an error of the system.
absl::Status RunTasks(int64_t count, int threads, const std::function<absl::Status(int64_t task, int thread)>& task,
                      const std::stop_token& stop = {});

// What an operation that was asked to stop returns.
absl::Status Stopped();

// Adds up what is done, and reports it now and then. Thread-safe.
class ProgressMeter {
 public:
  ProgressMeter(int64_t total, std::function<void(const ConvertProgress&)> report);
  void Add(int64_t bytes);
  // Reports for the last time.
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
