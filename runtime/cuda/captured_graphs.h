// How many graphs are alive that something was captured into.
#ifndef RESHARD_RUNTIME_CUDA_CAPTURED_GRAPHS_H_
#define RESHARD_RUNTIME_CUDA_CAPTURED_GRAPHS_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "runtime/cuda/device.h"

namespace reshard::cuda {

// NCCL waits for the graphs that use a communicator before it ends it: the owner that is about to end one asks here
// first. The driver tells when a graph ends, on a thread of its own, maybe when this is long gone. Add from one thread
// at a time.
class CapturedGraphs {
 public:
  // The stream is being captured: its graph counts from now on, until it, and all that was instantiated of it, have
  // been destroyed and have run.
  absl::Status Add(const CudaDevice& device, CudaStream stream);
  int64_t alive() const { return alive_->load(); }

 private:
  uint64_t last_capture_ = 0;
  std::shared_ptr<std::atomic<int64_t>> alive_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace reshard::cuda

#endif  // RESHARD_RUNTIME_CUDA_CAPTURED_GRAPHS_H_
