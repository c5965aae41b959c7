// Watches the operations that a communicator has enqueued, from a thread of its own: whether each ends, whether it ends
// in time, whether NCCL reports an error, and whether another rank has told of a failure.
//
// State: the operations under way, oldest first, and, once something went wrong, the error. An operation ends when the
// event behind it has happened; then its check, if it has one, is run. The first error is final: the thread tells the
// other ranks through the store unless they told it, calls `abort`, and forgets what was under way.
//
// To find the culprit of a late operation, the thread asks through the store how many operations every rank has begun,
// and judges the answers as all backends do (runtime/execute/culprit.h).
#ifndef RESHARD_RUNTIME_NCCL_WATCHDOG_H_
#define RESHARD_RUNTIME_NCCL_WATCHDOG_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "reshard/runtime/recent_operations.h"
#include "reshard/runtime/rendezvous_store.h"
#include "runtime/cuda/device.h"
#include "runtime/execute/culprit.h"
#include "status/mutex.h"

namespace reshard::nccl {

struct WatchdogOptions {
  int64_t rank = 0;
  int64_t size = 0;
  absl::Duration timeout;
  RendezvousStore* store = nullptr;
  // OK, or what NCCL says of its communicators. Called from the thread.
  std::function<absl::Status()> async_error;
  // Ends what hangs on the device. Called once, from the thread or from Fail.
  std::function<void()> abort;
};

class Watchdog {
 public:
  // `device` must outlive it.
  Watchdog(const cuda::CudaDevice& device, WatchdogOptions options);
  // Waits for what is under way, at most until its deadline.
  ~Watchdog();

  // Runs one collective operation: counts it, has `enqueue` put it on the stream, and watches it until it has ended
  // there; then `check` is run. An error on the way ends the communicator and is returned, as is an earlier error that
  // ended it. The operation begins when the one before has ended, even on a different stream: NCCL kernels that are on
  // a device at the same time may wait for each other forever. What a captured stream records is not watched, and an
  // error then leaves the communicator as it is; `enqueue` is told whether the stream is captured.
  absl::Status Operate(absl::string_view name, int64_t bytes, absl::FunctionRef<cuda::CudaStream()> stream,
                       absl::FunctionRef<absl::Status(cuda::CudaStream, bool captured)> enqueue,
                       std::function<absl::Status()> check = nullptr);

  // Ends the communicator with an error of this rank. Returns the error that it ended with: an earlier one wins.
  absl::Status Fail(const absl::Status& error);
  // The error that ended the communicator, for later calls.
  absl::Status failure() const;
  // Returns when nothing is under way any more, with the error that ended it, if any.
  absl::Status WaitForAll();

  const RecentOperations& recent() const { return recent_; }

 private:
  struct Operation {
    int64_t number = 0;    // in recent_
    int64_t sequence = 0;  // how many had begun with it
    std::string name;
    cuda::CudaStream stream = nullptr;
    cuda::CudaEvent event = nullptr;
    absl::Time begun;
    absl::Time deadline;
    std::function<absl::Status()> check;
  };

  absl::Status Begin(absl::string_view name, int64_t bytes);
  // Makes the stream wait for the last operation under way, which is on another one.
  absl::Status FollowOn(cuda::CudaStream stream);
  // The operation ends with what is on the stream now.
  absl::Status Enqueued(cuda::CudaStream stream, std::function<absl::Status()> check);
  // The operation left nothing to watch.
  void Left(const absl::Status& status);
  void Serve();
  // One look at everything. Returns how long to sleep.
  absl::Duration Look();
  absl::Status LookAtFirst(bool* ended);
  absl::Status LookAtStore(absl::Time now);
  absl::Status CulpritErrorFor(const Operation& late);
  void Answer();
  static std::string Key(absl::string_view name);

  const cuda::CudaDevice& device_;
  const WatchdogOptions options_;
  const execute::SharedVerdict verdict_;
  RecentOperations recent_;

  mutable status::Mutex mutex_;
  status::Changes changed_;
  std::deque<Operation> under_way_ ABSL_GUARDED_BY(mutex_);
  std::deque<Operation> dropped_ ABSL_GUARDED_BY(mutex_);  // under way when the communicator was lost
  std::vector<cuda::CudaEvent> free_events_ ABSL_GUARDED_BY(mutex_);
  std::string current_ ABSL_GUARDED_BY(mutex_);  // the operation that has begun and is not enqueued yet
  int64_t current_number_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;

  // Used by the thread alone.
  bool answered_ = false;
  absl::Time looked_at_store_ = absl::InfinitePast();
  absl::Time looked_at_nccl_ = absl::InfinitePast();
  absl::Time logged_wait_ = absl::InfinitePast();

  std::thread thread_;
};

}  // namespace reshard::nccl

#endif  // RESHARD_RUNTIME_NCCL_WATCHDOG_H_
