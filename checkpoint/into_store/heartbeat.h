// The sign of life of a worker that writes into a store.
#ifndef RESHARD_CHECKPOINT_INTO_STORE_HEARTBEAT_H_
#define RESHARD_CHECKPOINT_INTO_STORE_HEARTBEAT_H_

#include <thread>

#include "checkpoint/into_store/store_job.h"
#include "status/mutex.h"

namespace reshard::into_store {

// Beats every StoreJob::kBeatSeconds for as long as it exists. `job` outlives it.
class Heartbeat {
 public:
  explicit Heartbeat(const StoreJob& job) : thread_([this, &job] { Run(job); }) {}
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  void Run(const StoreJob& job);

  status::Mutex mutex_;
  status::Changes changed_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace reshard::into_store

#endif  // RESHARD_CHECKPOINT_INTO_STORE_HEARTBEAT_H_
