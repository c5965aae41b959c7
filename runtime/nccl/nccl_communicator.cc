#include "reshard/nccl/nccl_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/planner/traffic.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/device_step.h"
#include "runtime/cuda/stream_agreement.h"
#include "runtime/execute/agreement.h"
#include "runtime/nccl/nccl_transport.h"
#include "runtime/nccl/watchdog.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard {
namespace {

constexpr char kIdKey[] = "reshard/nccl/id";

absl::StatusOr<NcclUniqueId> RendezvousOn(const NcclApi& api, int64_t rank, RendezvousStore* store,
                                          absl::Duration timeout) {
  NcclUniqueId id;
  if (rank == 0) {
    const NcclResult made = api.GetUniqueId(&id);
    if (made != kNcclSuccess) {
      return absl::InternalError(absl::StrCat("making an id: NCCL says: ", api.GetErrorString(made)));
    }
    RETURN_IF_ERROR(store->Set(kIdKey, std::string(id.internal, sizeof(id.internal))));
    return id;
  }
  const absl::StatusOr<std::string> text = store->Get(kIdKey, timeout);
  if (!text.ok()) {
    return absl::Status(text.status().code(), absl::StrCat("rank 0 published no id: ", text.status().message()));
  }
  if (text->size() != sizeof(id.internal)) return absl::InternalError("the id that rank 0 published is damaged");
  std::memcpy(id.internal, text->data(), sizeof(id.internal));
  return id;
}

std::string CameKey(int64_t rank) { return absl::StrCat("reshard/nccl/came/", rank); }

// The error when making a communicator took too long: it names ranks that did not even begin.
absl::Status NameMissing(const absl::Status& late, int64_t size, RendezvousStore* store, absl::Duration timeout) {
  std::vector<int64_t> missing;
  for (int64_t r = 0; r < size; ++r) {
    const absl::StatusOr<std::optional<std::string>> came = store->TryGet(CameKey(r));
    if (came.ok() && !came->has_value()) missing.push_back(r);
  }
  if (missing.empty()) return late;
  return absl::DeadlineExceededError(absl::StrCat(execute::ListRanks(missing), " did not arrive within ",
                                                  absl::ToInt64Milliseconds(timeout), " ms to make a communicator"));
}

}  // namespace

struct NcclCommunicator::Impl {
  Impl(const NcclApi& api, std::unique_ptr<cuda::CudaDevice> gpu, int64_t own_rank, int64_t ranks,
       RendezvousStore* store, const NcclOptions& options)
      : device(std::move(gpu)),
        rank(own_rank),
        size(ranks),
        transport(api, *device, rank, size,
                  {options.timeout, options.max_ctas, options.native_reductions, options.max_peers}),
        agreement(size, device.get(), &transport),
        watchdog(*device, {rank, size, options.timeout, store, [this] { return transport.AsyncError(); },
                           [this] { transport.Abort(); }}) {
    transport.InterruptBy([this] { return watchdog.failure(); });
    transport.DrainBy([this] { return watchdog.WaitForAll(); });
  }

  absl::Status Operate(absl::string_view name, int64_t bytes, absl::FunctionRef<absl::Status()> enqueue,
                       std::function<absl::Status()> check = nullptr) {
    return watchdog.Operate(
        name, bytes, [this] { return stream; },
        [&](cuda::CudaStream on, bool captured) -> absl::Status {
          if (captured) RETURN_IF_ERROR(transport.CapturedOn(on));
          return enqueue();
        },
        std::move(check));
  }

  const std::unique_ptr<cuda::CudaDevice> device;
  const int64_t rank;
  const int64_t size;
  cuda::CudaStream stream = nullptr;
  int64_t agreements = 0;
  nccl::NcclTransport transport;
  cuda::StreamAgreement agreement;
  nccl::Watchdog watchdog;  // last: its thread uses the others
};

NcclCommunicator::NcclCommunicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NcclCommunicator::~NcclCommunicator() = default;

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Create(int64_t rank, int64_t size,
                                                                           RendezvousStore* store,
                                                                           const NcclOptions& options) {
  ASSIGN_OR_RETURN(const NcclApi* const nccl, LoadNcclApi());
  const absl::StatusOr<const cuda::CudaApi*> cuda = cuda::LoadCudaApi();
  if (!cuda.ok()) return cuda.status();
  absl::StatusOr<std::unique_ptr<cuda::CudaDevice>> device = cuda::CudaDevice::Open(**cuda, options.device);
  if (!device.ok()) return device.status();
  return CreateOn(*nccl, *std::move(device), rank, size, store, options);
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::CreateOn(const NcclApi& api,
                                                                             std::unique_ptr<cuda::CudaDevice> device,
                                                                             int64_t rank, int64_t size,
                                                                             RendezvousStore* store,
                                                                             const NcclOptions& options) {
  if (size < 1 || rank < 0 || rank >= size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " of ", size, " ranks"));
  }
  if (store == nullptr) return absl::InvalidArgumentError("ranks need a store to meet");
  return status::NoThrow("making a communicator", [&]() -> absl::StatusOr<std::unique_ptr<NcclCommunicator>> {
    auto impl = std::make_unique<Impl>(api, std::move(device), rank, size, store, options);
    absl::Status joined = store->Set(CameKey(rank), "");
    if (!joined.ok()) return impl->watchdog.Fail(joined);
    const absl::StatusOr<NcclUniqueId> id = RendezvousOn(api, rank, store, options.timeout);
    joined = id.status();
    if (joined.ok()) joined = impl->transport.Join(*id, [&] { return impl->watchdog.failure(); });
    if (absl::IsDeadlineExceeded(joined)) joined = NameMissing(joined, size, store, options.timeout);
    if (!joined.ok()) return impl->watchdog.Fail(joined);
    return std::unique_ptr<NcclCommunicator>(new NcclCommunicator(std::move(impl)));
  });
}

void NcclCommunicator::UseStream(void* stream) { impl_->stream = stream; }
int64_t NcclCommunicator::rank() const { return impl_->rank; }
int64_t NcclCommunicator::world_size() const { return impl_->size; }
cuda::CudaDevice& NcclCommunicator::device() const { return *impl_->device; }
std::optional<int> NcclCommunicator::gpu() const { return impl_->device->ordinal(); }
const RecentOperations* NcclCommunicator::recent_operations() const { return &impl_->watchdog.recent(); }
int64_t NcclCommunicator::groups() const { return impl_->transport.splits(); }
absl::Status NcclCommunicator::Wait() { return impl_->watchdog.WaitForAll(); }

absl::StatusOr<Memory> NcclCommunicator::Allocate(int64_t bytes) {
  return impl_->device->AllocateMemory(bytes, impl_->stream);
}

absl::Status NcclCommunicator::Agree(const absl::Status& own, const Signature& problem) {
  Impl& impl = *impl_;
  const int64_t sequence = impl.agreements++;
  if (impl.size == 1) return own;
  const absl::StatusOr<bool> captured = impl.device->IsCapturing(impl.stream);
  if (!captured.ok()) return impl.watchdog.Fail(captured.status());
  if (*captured) return own;
  const absl::StatusOr<cuda::StreamAgreement::Room*> room = impl.agreement.Take();
  if (!room.ok()) return impl.watchdog.Fail(room.status());
  const auto enqueue = [&] {
    return impl.agreement.Enqueue(*room, execute::MakeAgreementMessage(own, problem, sequence), impl.transport.world(),
                                  impl.stream);
  };
  // Judged by the watching thread when the messages are there.
  RETURN_IF_ERROR(impl.Operate("agreement", impl.size * static_cast<int64_t>(sizeof(execute::AgreementMessage)),
                               enqueue, [&impl, judged = *room] { return impl.agreement.Judge(judged); }));
  if (own.ok()) return own;
  // The others must hear of it before this rank goes on to something else.
  impl.watchdog.WaitForAll().IgnoreError();
  return own;
}

absl::StatusOr<MoveStats> NcclCommunicator::ExecuteStep(const StepProgram& step,
                                                        absl::Span<const ConstTensorView> inputs,
                                                        absl::Span<const TensorView> outputs,
                                                        std::unique_ptr<StepMemo>* memo) {
  Impl& impl = *impl_;
  const auto here = [](const ConstTensorView& view) {
    return view.memory == MemoryKind::kCuda || NumElements(view.shape) == 0;
  };
  if (!std::all_of(inputs.begin(), inputs.end(), here) || !std::all_of(outputs.begin(), outputs.end(), here)) {
    return absl::InvalidArgumentError("NCCL moves tensors in memory of a GPU; a fragment is in host memory");
  }
  MoveStats moved;
  RETURN_IF_ERROR(impl.Operate(status::View(Name(step.op)), step.recv_bytes, [&]() -> absl::Status {
    absl::StatusOr<MoveStats> done =
        cuda::ExecuteDeviceStep(step, impl.rank, inputs, outputs, *impl.device, impl.stream, impl.transport, memo);
    if (done.ok()) moved = *done;
    return done.status();
  }));
  return moved;
}

absl::Status NcclCommunicator::WarmUp() {
  Impl& impl = *impl_;
  if (impl.size == 1) return absl::OkStatus();
  const int64_t bytes = 16;
  const auto enqueue = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(cuda::DeviceBlock block, impl.device->Allocate(2 * impl.size * bytes, impl.stream));
    char* const out = block.data();
    char* const in = out + impl.size * bytes;
    std::vector<cuda::DeviceSend> sends;
    std::vector<cuda::DeviceReceive> receives;
    for (int64_t r = 0; r < impl.size; ++r) {
      if (r == impl.rank) continue;
      sends.push_back({r, out + r * bytes, bytes});
      receives.push_back({r, in + r * bytes, bytes});
    }
    absl::Status status = impl.transport.Exchange(sends, receives, impl.stream);
    const cuda::DeviceCollective gather{out, in, bytes};
    const cuda::DeviceCollective reduce{out, in, bytes};
    void* const world = impl.transport.world();
    if (status.ok()) status = impl.transport.Collect(Op::kAllGather, world, {&gather, 1}, impl.stream);
    if (status.ok()) status = impl.transport.Collect(Op::kReduceScatter, world, {&reduce, 1}, impl.stream);
    if (status.ok()) status = impl.transport.Collect(Op::kAllReduce, world, {&reduce, 1}, impl.stream);
    return status;
  };
  const absl::Status enqueued = impl.Operate("warm-up", impl.size * bytes, enqueue);
  return enqueued.ok() ? Wait() : enqueued;
}

absl::Status NcclCommunicator::Barrier() {
  Impl& impl = *impl_;
  if (impl.size == 1) return Wait();
  const auto enqueue = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(cuda::DeviceBlock block, impl.device->Allocate(impl.size + 1, impl.stream));
    const cuda::DeviceCollective gather{block.data(), block.data() + 1, 1};
    return impl.transport.Collect(Op::kAllGather, impl.transport.world(), {&gather, 1}, impl.stream);
  };
  const absl::Status enqueued = impl.Operate("barrier", impl.size, enqueue);
  return enqueued.ok() ? Wait() : enqueued;
}

}  // namespace reshard
