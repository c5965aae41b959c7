#include "runtime/pytorch/cuda_transports.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/cuda/device.h"
#include "runtime/groups/c10d_cuda_communicator.h"
#include "runtime/groups/c10d_rendezvous_store.h"
#include "runtime/groups/why_not.h"
#include "runtime/pytorch/torch_stream.h"
#include "status/macros.h"

namespace reshard::pytorch {
namespace {

constexpr char kVariable[] = "RESHARD_CUDA_TRANSPORT";
constexpr char kMaxPeers[] = "RESHARD_CUDA_MAX_PEERS";

// The value of RESHARD_CUDA_MAX_PEERS; 0 if it is not set: all peers at once.
absl::StatusOr<int64_t> MaxPeersOfEnvironment() {
  const char* const text = std::getenv(kMaxPeers);
  int64_t peers = 0;
  if (text == nullptr || *text == '\0') return peers;
  if (!absl::SimpleAtoi(text, &peers) || peers < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(kMaxPeers, "=", text, " is not a number of ranks: at least 1, or unset for all at once"));
  }
  return peers;
}

// The signature of a problem with tensors on GPUs. It differs from that of the same problem on the host, since ranks
// whose tensors are in different kinds of memory would wait for each other. It differs in its first field: a different
// network is only a consequence. The last one is kept, because a trainer makes the same call again and again.
struct OnGpus {
  Fingerprint of;
  Signature signature;
};

const Signature& SignatureOnGpus(const Signature& problem, OnGpus* last) {
  if (last->signature.fields.empty() || !(last->of == problem.fingerprint)) {
    last->of = problem.fingerprint;
    last->signature = problem;
    last->signature.fields.insert(last->signature.fields.begin(), {"tensors on GPUs", ""});
    last->signature.fingerprint.high ^= 0x9E3779B97F4A7C15;
  }
  return last->signature;
}

// What an NcclCommunicator uses and does not own.
struct NcclNeeds {
  std::unique_ptr<cuda::DeviceMemory> memory;
  groups::C10dRendezvousStore store;
};

}  // namespace

absl::StatusOr<CudaTransport> CudaTransportOfEnvironment() {
  const char* const text = std::getenv(kVariable);
  const absl::string_view name = text == nullptr ? "" : text;
  if (name.empty() || name == "c10d") return CudaTransport::kC10d;
  if (name == "nccl") return CudaTransport::kNccl;
  return absl::InvalidArgumentError(absl::StrCat(
      kVariable, "=", name, " is unknown; c10d (the group's own backend) or nccl (a communicator of this library)"));
}

std::function<absl::Status(const absl::Status& own, const Signature& problem)> AgreeThrough(
    std::shared_ptr<TensorCommunicator> host) {
  return
      [host = std::move(host), last = std::make_shared<OnGpus>()](const absl::Status& own, const Signature& problem) {
        absl::Status agreed;
        host->RunInOrder([&] { agreed = host->communicator().Agree(own, SignatureOnGpus(problem, last.get())); });
        return agreed;
      };
}

absl::StatusOr<CudaCommunicator> MakeCudaCommunicator(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                                      at::Device device, std::shared_ptr<TensorCommunicator> host,
                                                      int64_t index) {
  ASSIGN_OR_RETURN(const CudaTransport transport, CudaTransportOfEnvironment());
  ASSIGN_OR_RETURN(const int64_t max_peers, MaxPeersOfEnvironment());
  const absl::StatusOr<const cuda::CudaApi*> api = cuda::LoadCudaApi();
  if (!api.ok()) {
    return absl::Status(api.status().code(),
                        absl::StrCat("tensors on ", device.str(), " cannot be moved: ", api.status().message()));
  }
  if (group->getStore() == nullptr) return absl::FailedPreconditionError("the process group has no store to meet in");
  const std::string prefix = absl::StrCat("reshard/gpus/", index, "/");
  auto memory = std::make_unique<TorchDeviceMemory>(device);
  CudaCommunicator made;
  if (transport == CudaTransport::kNccl) {
    ASSIGN_OR_RETURN(const NcclApi* const library, LoadNcclApi());
    ASSIGN_OR_RETURN(std::unique_ptr<cuda::CudaDevice> opened,
                     cuda::CudaDevice::Open(**api, device.index(), memory.get()));
    auto kept = std::make_shared<NcclNeeds>(NcclNeeds{std::move(memory), {group, prefix}});
    NcclOptions options;
    options.device = device.index();
    options.max_peers = max_peers;
    ASSIGN_OR_RETURN(std::unique_ptr<NcclCommunicator> nccl,
                     NcclCommunicator::CreateOn(*library, std::move(opened), group->getRank(), group->getSize(),
                                                &kept->store, options));
    made.kept = std::move(kept);
    made.communicator = std::move(nccl);
    return made;
  }
  c10::intrusive_ptr<c10d::Backend> backend;
  const std::string reason = groups::WhyNot([&] { backend = group->getBackend(c10::DeviceType::CUDA); });
  if (!reason.empty() || !backend->supportsCoalescing()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the process group moves tensors of GPUs with ", reason.empty() ? backend->getBackendName() : "nothing",
        ", which this library cannot use; make it with the backend \"cpu:gloo,cuda:nccl\" or \"nccl\", or set ",
        kVariable, "=nccl"));
  }
  auto store = std::make_unique<groups::C10dRendezvousStore>(group, prefix);
  ASSIGN_OR_RETURN(std::unique_ptr<cuda::CudaDevice> opened,
                   cuda::CudaDevice::Open(**api, device.index(), memory.get()));
  groups::C10dCudaOptions options;
  options.stream = [device] { return CurrentStreamOf(device); };
  if (host != nullptr) options.agree_on_host = AgreeThrough(std::move(host));
  options.backend_of = device;
  options.max_peers = max_peers;
  ASSIGN_OR_RETURN(std::unique_ptr<groups::C10dCudaCommunicator> c10d,
                   groups::C10dCudaCommunicator::Create(group, std::move(store), std::move(memory), std::move(opened),
                                                        std::move(options)));
  made.communicator = std::move(c10d);
  return made;
}

}  // namespace reshard::pytorch
