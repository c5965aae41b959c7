// Torch's streams and its memory of GPUs, through the interfaces of libc10 that know no CUDA: a library that is linked
// to the CPU's part of torch only works with what the process has loaded.
#ifndef RESHARD_RUNTIME_TORCH_TORCH_STREAM_H_
#define RESHARD_RUNTIME_TORCH_TORCH_STREAM_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>
#include <vector>

#include "runtime/cuda/device.h"

namespace reshard {

// torch.cuda.current_stream(device) of this thread, as the driver knows it.
CudaStream CurrentStreamOf(at::Device device);

// Memory of torch's caching allocator, so that intermediates and stagings need no second pool. It orders memory by the
// current stream, which therefore is the one that it must be used on.
class TorchDeviceMemory final : public DeviceMemory {
 public:
  explicit TorchDeviceMemory(at::Device device) : device_(device) {}

  absl::StatusOr<void*> Allocate(int64_t bytes, CudaStream stream) override;
  void Free(void* memory, CudaStream stream) override;

 private:
  const at::Device device_;
};

// One piece of work on a stream beside the caller's: it begins after what the caller has enqueued by now, and the
// streams that use its results wait for it.
class SideStream {
 public:
  explicit SideStream(at::Device device);

  // On any thread: f() with the side stream current. It may read `inputs`.
  void Run(const std::vector<at::Tensor>& inputs, const std::function<void()>& f);
  // What is enqueued on this thread's current stream from now on comes after what Run enqueued.
  void Join(const std::vector<at::Tensor>& results);

 private:
  const at::Device device_;
  const c10::Stream stream_;
  c10::Event begin_;
  c10::Event end_;
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_TORCH_TORCH_STREAM_H_
