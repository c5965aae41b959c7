// Torch's streams and GPU memory, through the device-independent interfaces of libc10, so that a library that links
// only the CPU part of torch works with whatever the process has loaded.
#ifndef RESHARD_RUNTIME_PYTORCH_TORCH_STREAM_H_
#define RESHARD_RUNTIME_PYTORCH_TORCH_STREAM_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>
#include <vector>

#include "runtime/cuda/device.h"

namespace reshard::pytorch {

// torch.cuda.current_stream(device) of this thread, as a handle of the driver.
cuda::CudaStream CurrentStreamOf(at::Device device);

// Memory from torch's caching allocator, so that intermediates and staging need no second pool. The allocator orders
// reuse by the current stream, so the memory must be used on that stream.
class TorchDeviceMemory final : public cuda::DeviceMemory {
 public:
  explicit TorchDeviceMemory(at::Device device) : device_(device) {}

  absl::StatusOr<void*> Allocate(int64_t bytes, cuda::CudaStream stream) override;
  void Free(void* memory, cuda::CudaStream stream) override;

 private:
  const at::Device device_;
};

// One piece of work on a stream other than the caller's: it begins after what the caller has enqueued so far, and the
// streams that use its results wait for it.
class SideStream {
 public:
  explicit SideStream(at::Device device);

  // Calls f() with the side stream current, on any thread. f may read `inputs`.
  void Run(const std::vector<at::Tensor>& inputs, const std::function<void()>& f);
  // Makes everything that is enqueued on this thread's current stream from now on wait for what Run enqueued.
  void Join(const std::vector<at::Tensor>& results);

 private:
  const at::Device device_;
  const c10::Stream stream_;
  c10::Event begin_;
  c10::Event end_;
};

}  // namespace reshard::pytorch

#endif  // RESHARD_RUNTIME_PYTORCH_TORCH_STREAM_H_
