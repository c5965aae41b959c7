// Watches what was enqueued on streams: that it is done, and in time. NCCL does not notice most lost peers, and nobody
// waits for a stream here, so a thread looks.
#ifndef RESHARD_RUNTIME_TORCH_STREAM_WATCH_H_
#define RESHARD_RUNTIME_TORCH_STREAM_WATCH_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/cuda/device.h"

namespace reshard {

class StreamWatch {
 public:
  struct Operation {
    std::string name;
    int64_t number = 0;
    // Called once when it is done on the device, from any thread, with the watch locked; may be null. An error ends
    // the watch like one of the device.
    std::function<absl::Status()> done;
  };
  // What became of an operation that is not done: DeadlineExceeded when the time was over, else the error.
  using Failed = std::function<void(const Operation&, const absl::Status&)>;

  // `failed` is called at most once, from the watch's thread; nothing is watched after it.
  StreamWatch(CudaDevice* device, absl::Duration timeout, Failed failed);
  // Does not wait for operations.
  ~StreamWatch();
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;

  // `operation` is everything that was enqueued on the stream so far. Its time begins when what was added before is
  // done.
  absl::Status Add(CudaStream stream, Operation operation);
  // Looks at once instead of when the thread does. When it finds an error, now or before, returns true after `failed`
  // has been called.
  bool FindsFailure();
  // Runs f on the thread, before anything else.
  void Post(std::function<void()> f);
  // Returns when everything that was added is done, or `failed` has been called.
  void WaitUntilDone();

 private:
  struct Watched {
    Operation operation;
    CudaEvent event = nullptr;
  };
  void Serve();
  void LookLocked();

  CudaDevice& device_;
  const absl::Duration timeout_;
  const Failed failed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Watched> watched_;  // guarded by mutex_, like all below
  std::vector<CudaEvent> free_events_;
  std::vector<std::function<void()>> posted_;
  absl::Time since_;  // when the first of watched_ became that
  absl::Status error_;
  bool over_ = false;  // `failed` was called, or the driver is gone
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_TORCH_STREAM_WATCH_H_
