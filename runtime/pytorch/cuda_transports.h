// Chooses and creates what carries GPU tensors over a process group.
#ifndef RESHARD_RUNTIME_PYTORCH_CUDA_TRANSPORTS_H_
#define RESHARD_RUNTIME_PYTORCH_CUDA_TRANSPORTS_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "reshard/nccl/nccl_communicator.h"
#include "reshard/runtime/communicator.h"
#include "reshard/torch/redistribute.h"

namespace reshard::pytorch {

enum class CudaTransport { kC10d, kNccl };

// The value of RESHARD_CUDA_TRANSPORT. InvalidArgument, with the known names, for any other value.
absl::StatusOr<CudaTransport> CudaTransportOfEnvironment();

struct CudaCommunicator {
  std::shared_ptr<void> kept;  // what the communicator uses; must outlive it
  std::unique_ptr<Communicator> communicator;
};

// Creates a communicator for tensors on `device` (cuda, with its index). Collective for kNccl. `host` is the
// communicator for host tensors over the same group, null if the group has no backend for them; `index` distinguishes
// the communicators for GPUs over one group, and is the same on all ranks.
// Unavailable: there is no CUDA or no NCCL. FailedPrecondition: the group has no backend that moves GPU tensors.
absl::StatusOr<CudaCommunicator> MakeCudaCommunicator(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                                      at::Device device, std::shared_ptr<TensorCommunicator> host,
                                                      int64_t index);

// Returns a function that makes ranks agree through the communicator `host`, in order with the calls of `host`.
std::function<absl::Status(const absl::Status& own, const Signature& problem)> AgreeThrough(
    std::shared_ptr<TensorCommunicator> host);

}  // namespace reshard::pytorch

#endif  // RESHARD_RUNTIME_PYTORCH_CUDA_TRANSPORTS_H_
