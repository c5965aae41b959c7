// Messages and collectives between GPUs over a c10d backend: ProcessGroupNCCL.
//
// The backend has streams of its own, which wait for the current stream, and its works make the current stream wait for
// them; no host waits. So the stream that is passed must be the current one. A backend of host memory (Gloo, in tests)
// knows no streams: there the host waits, for the stream before and for the backend after.
#ifndef RESHARD_RUNTIME_TORCH_C10D_DEVICE_TRANSPORT_H_
#define RESHARD_RUNTIME_TORCH_C10D_DEVICE_TRANSPORT_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "absl/time/time.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/device_transport.h"

namespace reshard {

class C10dDeviceTransport final : public DeviceTransport {
 public:
  // `device` must outlive it. Where the backend is one for host memory, so must the memory of the device be.
  C10dDeviceTransport(int64_t size, at::Device where, absl::Duration timeout, CudaDevice* device)
      : size_(size), where_(where), timeout_(timeout), device_(*device) {}

  // For the calls that follow.
  void Use(c10d::Backend* backend);

  absl::Status Exchange(absl::Span<const DeviceSend> sends, absl::Span<const DeviceReceive> receives,
                        CudaStream stream) override;
  // Not null when the group is all ranks in their order: the backend is its communicator. Others are not made: their
  // moves go as messages.
  absl::StatusOr<void*> GroupFor(const StepProgram& step) override;
  bool Reduces(ReduceOp op, DType dtype) const override;
  absl::Status Collect(Op op, void* group, absl::Span<const DeviceCollective> calls, CudaStream stream) override;

 private:
  class Coalesced;
  at::Tensor Over(const void* data, int64_t elements, DType dtype) const;
  absl::Status CollectOne(Op op, const DeviceCollective& call, bool alone, CudaStream stream);
  absl::Status Prepare(CudaStream stream);
  void Wait(const c10::intrusive_ptr<c10d::Work>& work) const;

  const int64_t size_;
  const at::Device where_;
  const absl::Duration timeout_;
  CudaDevice& device_;
  c10d::Backend* backend_ = nullptr;
  bool is_nccl_ = false;
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_TORCH_C10D_DEVICE_TRANSPORT_H_
