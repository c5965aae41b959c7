// Counts the live graphs that something was captured into.
#ifndef RESHARD_RUNTIME_CUDA_CAPTURED_GRAPHS_H_
#define RESHARD_RUNTIME_CUDA_CAPTURED_GRAPHS_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "runtime/cuda/device.h"

namespace reshard::cuda {

// Before NCCL ends a communicator, it waits for the graphs that use it, so the owner asks here before it ends one. The
// driver reports the end of a graph on a thread of its own, maybe when this is long gone. Call Add from one thread at a
// time.
class CapturedGraphs {
 public:
  // Counts the graph that the stream is being captured into, until that graph and everything instantiated from it have
  // run and been destroyed.
  absl::Status Add(const CudaDevice& device, CudaStream stream);
  int64_t alive() const { return alive_->load(); }

 private:
  uint64_t last_capture_ = 0;
  std::shared_ptr<std::atomic<int64_t>> alive_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace reshard::cuda

#endif  // RESHARD_RUNTIME_CUDA_CAPTURED_GRAPHS_H_
