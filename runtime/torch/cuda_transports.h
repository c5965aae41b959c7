// What carries tensors of GPUs over a process group.
#ifndef RESHARD_RUNTIME_TORCH_CUDA_TRANSPORTS_H_
#define RESHARD_RUNTIME_TORCH_CUDA_TRANSPORTS_H_

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

namespace reshard {

enum class CudaTransport { kC10d, kNccl };

// RESHARD_CUDA_TRANSPORT; InvalidArgument, with the known names, for others.
absl::StatusOr<CudaTransport> CudaTransportOfEnvironment();

struct CudaCommunicator {
  std::shared_ptr<void> kept;  // what the communicator uses; must outlive it
  std::unique_ptr<Communicator> communicator;
};

// A communicator for tensors on `device` (cuda, with its index). Collective for kNccl. `host` is the communicator of
// host tensors over the same group, null where the group has no backend for them; `index` tells the communicators of
// GPUs over one group apart, and is the same on all ranks.
// Unavailable: no CUDA or no NCCL here. FailedPrecondition: the group has no backend that moves tensors of GPUs.
absl::StatusOr<CudaCommunicator> MakeCudaCommunicator(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                                      at::Device device, std::shared_ptr<TensorCommunicator> host,
                                                      int64_t index);

// Agreement through another communicator, in the turn of its own calls.
std::function<absl::Status(const absl::Status& own, const Signature& problem)> AgreeThrough(
    std::shared_ptr<TensorCommunicator> host);

// The store of a process group, below a prefix. Unavailable where the group has none, and once it has been destroyed.
class C10dRendezvousStore final : public RendezvousStore {
 public:
  // Takes a connection of its own where the store has such: a thread that looks there now and then must not wait for
  // the group's long waits.
  C10dRendezvousStore(const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::string prefix);

  absl::Status Set(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override;
  absl::StatusOr<std::optional<std::string>> TryGet(const std::string& key) override;

 private:
  template <typename F>
  absl::Status Ask(const std::string& key, F&& f) const;

  const c10::weak_intrusive_ptr<c10d::ProcessGroup> group_;
  c10::intrusive_ptr<c10d::Store> store_;
  const std::string prefix_;
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_TORCH_CUDA_TRANSPORTS_H_
