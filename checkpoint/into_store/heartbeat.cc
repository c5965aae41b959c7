#include "checkpoint/into_store/heartbeat.h"

#include <chrono>
#include <cstdint>

#include "status/no_throw.h"

namespace reshard::into_store {

Heartbeat::~Heartbeat() {
  {
    const status::MutexLock lock(mutex_);
    ended_ = true;
    changed_.Announce();
  }
  thread_.join();
}

void Heartbeat::Run(const StoreJob& job) {
  for (int64_t count = 0;; ++count) {
    // Nothing depends on a single heartbeat.
    status::NoThrow("a heartbeat", [&] { return job.Beat(count); }).IgnoreError();
    const status::MutexLock lock(mutex_);
    changed_.WaitFor(mutex_, std::chrono::seconds(StoreJob::kBeatSeconds),
                     [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_; });
    if (ended_) return;
  }
}

}  // namespace reshard::into_store
