#include "runtime/torch/cuda_transports.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/cuda/device.h"
#include "runtime/torch/c10d_cuda_communicator.h"
#include "runtime/torch/torch_stream.h"
#include "runtime/torch/why_not.h"

namespace reshard {
namespace {

constexpr char kVariable[] = "RESHARD_CUDA_TRANSPORT";

// A signature that differs from the one of the same problem on the host: ranks whose tensors lie in different kinds of
// memory would wait for each other. The last one is kept, because a trainer makes the same call again and again.
struct OnGpus {
  Fingerprint of;
  Signature signature;
};

const Signature& SignatureOnGpus(const Signature& problem, OnGpus* last) {
  if (last->signature.fields.empty() || !(last->of == problem.fingerprint)) {
    last->of = problem.fingerprint;
    last->signature = problem;
    last->signature.fields.push_back({"tensors on GPUs", ""});
    last->signature.fingerprint.high ^= 0x9E3779B97F4A7C15;
  }
  return last->signature;
}

// What an NcclCommunicator uses and does not own.
struct NcclNeeds {
  std::unique_ptr<DeviceMemory> memory;
  C10dRendezvousStore store;
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
  const absl::StatusOr<CudaTransport> transport = CudaTransportOfEnvironment();
  if (!transport.ok()) return transport.status();
  const absl::StatusOr<const CudaApi*> api = LoadCudaApi();
  if (!api.ok()) {
    return absl::Status(api.status().code(),
                        absl::StrCat("tensors on ", device.str(), " cannot be moved: ", api.status().message()));
  }
  if (group->getStore() == nullptr) return absl::FailedPreconditionError("the process group has no store to meet in");
  const std::string prefix = absl::StrCat("reshard/gpus/", index, "/");
  auto memory = std::make_unique<TorchDeviceMemory>(device);
  CudaCommunicator made;
  if (*transport == CudaTransport::kNccl) {
    const absl::StatusOr<const NcclApi*> library = LoadNcclApi();
    if (!library.ok()) return library.status();
    absl::StatusOr<std::unique_ptr<CudaDevice>> opened = CudaDevice::Open(**api, device.index(), memory.get());
    if (!opened.ok()) return opened.status();
    auto kept = std::make_shared<NcclNeeds>(NcclNeeds{std::move(memory), {group, prefix}});
    NcclOptions options;
    options.device = device.index();
    absl::StatusOr<std::unique_ptr<NcclCommunicator>> nccl = NcclCommunicator::CreateOn(
        **library, *std::move(opened), group->getRank(), group->getSize(), &kept->store, options);
    if (!nccl.ok()) return nccl.status();
    made.kept = std::move(kept);
    made.communicator = *std::move(nccl);
    return made;
  }
  c10::intrusive_ptr<c10d::Backend> backend;
  const std::string reason = WhyNot([&] { backend = group->getBackend(c10::DeviceType::CUDA); });
  if (!reason.empty() || !backend->supportsCoalescing()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the process group moves tensors of GPUs with ", reason.empty() ? backend->getBackendName() : "nothing",
        ", which this library cannot use; make it with the backend \"cpu:gloo,cuda:nccl\" or \"nccl\", or set ",
        kVariable, "=nccl"));
  }
  auto store = std::make_unique<C10dRendezvousStore>(group, prefix);
  absl::StatusOr<std::unique_ptr<CudaDevice>> opened = CudaDevice::Open(**api, device.index(), memory.get());
  if (!opened.ok()) return opened.status();
  C10dCudaOptions options;
  options.stream = [device] { return CurrentStreamOf(device); };
  if (host != nullptr) options.agree_on_host = AgreeThrough(std::move(host));
  options.backend_of = device;
  absl::StatusOr<std::unique_ptr<C10dCudaCommunicator>> c10d =
      C10dCudaCommunicator::Create(group, std::move(store), std::move(memory), *std::move(opened), std::move(options));
  if (!c10d.ok()) return c10d.status();
  made.communicator = *std::move(c10d);
  return made;
}

C10dRendezvousStore::C10dRendezvousStore(const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::string prefix)
    : group_(group), store_(group->getStore()), prefix_(std::move(prefix)) {
  if (store_ == nullptr) return;
  WhyNot([this] { store_ = store_->clone(); });
}

template <typename F>
absl::Status C10dRendezvousStore::Ask(const std::string& key, F&& f) const {
  const c10::intrusive_ptr<c10d::ProcessGroup> group = group_.lock();
  if (group == nullptr) return absl::UnavailableError("the process group has been destroyed");
  if (store_ == nullptr) return absl::UnavailableError("the process group has no store");
  const std::string reason = WhyNot(f);
  if (reason.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the store of the process group, key ", key, ": ", reason.substr(0, 300)));
}

absl::Status C10dRendezvousStore::Set(const std::string& key, const std::string& value) {
  return Ask(key, [&] { store_->set(prefix_ + key, std::vector<uint8_t>(value.begin(), value.end())); });
}

absl::StatusOr<std::string> C10dRendezvousStore::Get(const std::string& key, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  std::vector<uint8_t> value;
  const absl::Status got = Ask(key, [&] {
    store_->wait({prefix_ + key}, std::chrono::milliseconds(std::max<int64_t>(1, absl::ToInt64Milliseconds(timeout))));
    value = store_->get(prefix_ + key);
  });
  if (got.ok()) return std::string(value.begin(), value.end());
  if (absl::Now() < deadline) return got;
  return absl::DeadlineExceededError(
      absl::StrCat("nobody wrote ", key, " within ", absl::ToInt64Milliseconds(timeout), " ms"));
}

absl::StatusOr<std::optional<std::string>> C10dRendezvousStore::TryGet(const std::string& key) {
  std::optional<std::string> found;
  const absl::Status asked = Ask(key, [&] {
    if (!store_->check({prefix_ + key})) return;
    const std::vector<uint8_t> value = store_->get(prefix_ + key);
    found.emplace(value.begin(), value.end());
  });
  if (!asked.ok()) return asked;
  return found;
}

}  // namespace reshard
