// Messages and collectives between GPUs over a c10d backend: ProcessGroupNCCL.
//
// The backend has streams of its own, which wait for the current stream, and its work objects make the current stream
// wait for them; the host never waits. So the stream that is passed must be the current one. A backend for host memory
// (Gloo, in tests) has no streams: there the host waits, for the stream before and for the backend after.
#ifndef RESHARD_RUNTIME_GROUPS_C10D_DEVICE_TRANSPORT_H_
#define RESHARD_RUNTIME_GROUPS_C10D_DEVICE_TRANSPORT_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "absl/time/time.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/device_transport.h"

namespace reshard::groups {

class C10dDeviceTransport final : public cuda::DeviceTransport {
 public:
  // `device` must outlive it. If the backend is one for host memory, the memory of the device must be host memory too.
  // `max_peers`: see C10dCudaOptions.
  C10dDeviceTransport(int64_t rank, int64_t size, at::Device where, absl::Duration timeout, int64_t max_peers,
                      cuda::CudaDevice* device)
      : rank_(rank), size_(size), where_(where), timeout_(timeout), max_peers_(max_peers), device_(*device) {}

  // The backend for later calls.
  void Use(c10d::Backend* backend);

  absl::Status Exchange(absl::Span<const cuda::DeviceSend> sends, absl::Span<const cuda::DeviceReceive> receives,
                        cuda::CudaStream stream) override;
  // Not null if the group is all ranks in order: the backend is its communicator. None are created for other groups,
  // whose moves go as messages.
  absl::StatusOr<void*> GroupFor(const StepProgram& step) override;
  bool Reduces(ReduceOp op, DType dtype) const override;
  absl::Status Collect(Op op, void* group, absl::Span<const cuda::DeviceCollective> calls,
                       cuda::CudaStream stream) override;

 private:
  class Coalesced;
  absl::Status ExchangeOnce(absl::Span<const cuda::DeviceSend> sends, absl::Span<const cuda::DeviceReceive> receives);
  at::Tensor Over(const void* data, int64_t elements, DType dtype) const;
  absl::Status CollectOne(Op op, const cuda::DeviceCollective& call, bool alone);
  absl::Status Prepare(cuda::CudaStream stream);
  void Wait(const c10::intrusive_ptr<c10d::Work>& work) const;

  const int64_t rank_;
  const int64_t size_;
  const at::Device where_;
  const absl::Duration timeout_;
  const int64_t max_peers_;
  cuda::CudaDevice& device_;
  c10d::Backend* backend_ = nullptr;
  bool is_nccl_ = false;
};

}  // namespace reshard::groups

#endif  // RESHARD_RUNTIME_GROUPS_C10D_DEVICE_TRANSPORT_H_
