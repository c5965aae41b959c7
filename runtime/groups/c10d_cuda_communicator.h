// A communicator between GPUs over the backend that a c10d process group has for them: ProcessGroupNCCL. It creates no
// NCCL communicator of its own, and torch's watchdog and flight recorder see everything.
//
// Everything is enqueued on the current stream, and no call waits for the device. Only in the first call do the ranks
// meet through the store of the group.
//
// Agreement (see Communicator::Agree): on the host if the group has a backend for it, exactly as for host tensors.
// Otherwise messages travel on the stream ahead of the data and are compared when they arrive: Agree returns OK
// immediately, and if ranks disagree or one has an error, the communicator becomes unusable on all ranks, with the same
// errors. While a stream is captured into a graph, nothing is compared there.
//
// Failure: as in NcclCommunicator, a thread watches what was enqueued, finds out through the store which rank is
// the culprit of what is late, and aborts the backend, which ends whatever hangs on the device. From then on every call
// returns the error. (By default torch's own watchdog ends the process if NCCL reports an error; with
// TORCH_NCCL_ASYNC_ERROR_HANDLING=0 it leaves that to this library.)
#ifndef RESHARD_RUNTIME_GROUPS_C10D_CUDA_COMMUNICATOR_H_
#define RESHARD_RUNTIME_GROUPS_C10D_CUDA_COMMUNICATOR_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "reshard/nccl/nccl_communicator.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/recent_operations.h"
#include "runtime/cuda/device.h"

namespace reshard::groups {

struct C10dCudaOptions {
  // How long an operation may take on the device, including the wait for other ranks, and how long ranks wait for each
  // other when they first meet.
  absl::Duration timeout = DefaultTimeout();
  // Returns the stream to use; called at every call.
  std::function<cuda::CudaStream()> stream;
  // Agrees on the host. If empty, ranks agree on the stream.
  std::function<absl::Status(const absl::Status& own, const Signature& problem)> agree_on_host;
  // The device whose backend in the group carries the bytes. Tests use another one, together with a device whose memory
  // is host memory.
  at::Device backend_of = at::Device(at::kCUDA, 0);
  // Maximum number of ranks that one group of messages goes to, and that it comes from; an exchange with more goes in
  // rounds. 0: all in one group. The same on all ranks.
  int64_t max_peers = 0;
};

class C10dCudaCommunicator final : public Communicator {
 public:
  // Local: the ranks meet at the first call. Does not keep the group alive; once it has been destroyed every call
  // returns Unavailable. The ranks meet, and tell of failures, through `store`. `memory` is what the device was opened
  // with; null when it has its own.
  static absl::StatusOr<std::unique_ptr<C10dCudaCommunicator>> Create(
      const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::unique_ptr<RendezvousStore> store,
      std::unique_ptr<cuda::DeviceMemory> memory, std::unique_ptr<cuda::CudaDevice> device, C10dCudaOptions options);
  // Waits for operations in progress, at most until their deadlines.
  ~C10dCudaCommunicator() override;

  int64_t rank() const override;
  int64_t world_size() const override;
  CopyFor copies() const override { return CopyFor::kMessages; }
  MemoryKind memory() const override { return MemoryKind::kCuda; }
  absl::StatusOr<Memory> Allocate(int64_t bytes) override;
  absl::Status Agree(const absl::Status& own, const Signature& problem) override;
  // FailedPrecondition also if the very first call is on a stream that is being captured.
  absl::StatusOr<MoveStats> ExecuteStep(const StepProgram& step, absl::Span<const ConstTensorView> inputs,
                                        absl::Span<const TensorView> outputs, std::unique_ptr<StepMemo>* memo) override;
  // Waits on the host for everything that was enqueued.
  absl::Status Barrier() override;
  // Waits until everything that was enqueued here is done, and returns its error.
  absl::Status Wait();

  cuda::CudaDevice& device() const;
  std::optional<int> gpu() const override;
  const RecentOperations* recent_operations() const override;

 private:
  struct Impl;
  explicit C10dCudaCommunicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace reshard::groups

#endif  // RESHARD_RUNTIME_GROUPS_C10D_CUDA_COMMUNICATOR_H_
