#include "runtime/groups/c10d_cuda_communicator.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/cuda/device_step.h"
#include "runtime/cuda/stream_agreement.h"
#include "runtime/execute/agreement.h"
#include "runtime/groups/c10d_device_transport.h"
#include "runtime/groups/why_not.h"
#include "runtime/nccl/watchdog.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard::groups {

struct C10dCudaCommunicator::Impl {
  Impl(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, std::unique_ptr<RendezvousStore> its_store,
       std::unique_ptr<cuda::DeviceMemory> its_memory, std::unique_ptr<cuda::CudaDevice> its_device,
       C10dCudaOptions opts)
      : group(process_group),
        rank(process_group->getRank()),
        size(process_group->getSize()),
        options(std::move(opts)),
        store(std::move(its_store)),
        memory(std::move(its_memory)),
        device(std::move(its_device)),
        transport(rank, size, options.backend_of.is_cuda() ? options.backend_of : at::Device(at::kCPU), options.timeout,
                  options.max_peers, device.get()),
        agreement(size, device.get(), &transport),
        watchdog(*device,
                 {rank, size, options.timeout, store.get(), [] { return absl::OkStatus(); }, [this] { Abort(); }}) {}

  // One operation over the backend of the group, see Watchdog::Operate; the first connects the ranks.
  absl::Status Operate(absl::string_view name, int64_t bytes,
                       const std::function<absl::Status(cuda::CudaStream)>& enqueue,
                       std::function<absl::Status()> check = nullptr);
  absl::Status Connect(cuda::CudaStream stream);
  absl::Status Rendezvous();
  void Abort();

  const c10::weak_intrusive_ptr<c10d::ProcessGroup> group;
  const int64_t rank;
  const int64_t size;
  const C10dCudaOptions options;
  const std::unique_ptr<RendezvousStore> store;
  const std::unique_ptr<cuda::DeviceMemory> memory;
  const std::unique_ptr<cuda::CudaDevice> device;
  C10dDeviceTransport transport;
  cuda::StreamAgreement agreement;
  bool connected = false;
  int64_t agreements = 0;
  nccl::Watchdog watchdog;  // last: its thread uses the others
};

absl::Status C10dCudaCommunicator::Impl::Operate(absl::string_view name, int64_t bytes,
                                                 const std::function<absl::Status(cuda::CudaStream)>& enqueue,
                                                 std::function<absl::Status()> check) {
  const c10::intrusive_ptr<c10d::ProcessGroup> process_group = group.lock();
  if (process_group == nullptr) return absl::UnavailableError("the process group has been destroyed");
  c10::intrusive_ptr<c10d::Backend> backend;
  const std::string reason = WhyNot([&] { backend = process_group->getBackend(options.backend_of.type()); });
  if (!reason.empty()) return absl::FailedPreconditionError(absl::StrCat("no backend for GPUs: ", reason));
  const auto after_connecting = [&](cuda::CudaStream stream, bool captured) -> absl::Status {
    transport.Use(backend.get());
    if (size > 1 && !connected) {
      if (captured) {
        return absl::FailedPreconditionError(
            "the first call over a process group cannot be captured into a graph: make one before");
      }
      RETURN_IF_ERROR(Connect(stream));
    }
    return enqueue(stream);
  };
  return watchdog.Operate(name, bytes, options.stream, after_connecting, std::move(check));
}

// At the first call the backend makes its connections, which takes all ranks; later steps may involve only a few.
absl::Status C10dCudaCommunicator::Impl::Connect(cuda::CudaStream stream) {
  RETURN_IF_ERROR(Rendezvous());
  ASSIGN_OR_RETURN(const cuda::DeviceBlock tokens, device->Allocate(size + 1, stream));
  const cuda::DeviceCollective gather{tokens.data(), tokens.data() + 1, 1};
  const absl::Status gathered = transport.Collect(Op::kAllGather, nullptr, {&gather, 1}, stream);
  connected = gathered.ok();
  return gathered;
}

// Making connections has no deadline, so the ranks wait for each other here.
absl::Status C10dCudaCommunicator::Impl::Rendezvous() {
  const auto key = [](int64_t r) { return absl::StrCat("arrived/", r); };
  RETURN_IF_ERROR(store->Set(key(rank), "yes"));
  const absl::Time deadline = absl::Now() + options.timeout;
  for (int64_t r = 0; r < size; ++r) {
    const absl::Status other = store->Get(key(r), deadline - absl::Now()).status();
    if (absl::IsDeadlineExceeded(other)) {
      return absl::DeadlineExceededError(absl::StrCat("rank ", r, " did not arrive within ",
                                                      absl::ToInt64Milliseconds(options.timeout), " ms at connecting"));
    }
    if (!other.ok()) return other;
  }
  return absl::OkStatus();
}

void C10dCudaCommunicator::Impl::Abort() {
  WhyNot([this] {
    const c10::intrusive_ptr<c10d::ProcessGroup> process_group = group.lock();
    if (process_group != nullptr) process_group->getBackend(options.backend_of.type())->abort();
  });
}

C10dCudaCommunicator::C10dCudaCommunicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
C10dCudaCommunicator::~C10dCudaCommunicator() = default;

absl::StatusOr<std::unique_ptr<C10dCudaCommunicator>> C10dCudaCommunicator::Create(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::unique_ptr<RendezvousStore> store,
    std::unique_ptr<cuda::DeviceMemory> memory, std::unique_ptr<cuda::CudaDevice> device, C10dCudaOptions options) {
  if (group == nullptr || store == nullptr || device == nullptr || !options.stream) {
    return absl::InvalidArgumentError("a communicator of GPUs needs a process group, a store, a device and a stream");
  }
  return status::NoThrow("making a communicator", [&]() -> absl::StatusOr<std::unique_ptr<C10dCudaCommunicator>> {
    return std::unique_ptr<C10dCudaCommunicator>(new C10dCudaCommunicator(
        std::make_unique<Impl>(group, std::move(store), std::move(memory), std::move(device), std::move(options))));
  });
}

int64_t C10dCudaCommunicator::rank() const { return impl_->rank; }
int64_t C10dCudaCommunicator::world_size() const { return impl_->size; }
cuda::CudaDevice& C10dCudaCommunicator::device() const { return *impl_->device; }
std::optional<int> C10dCudaCommunicator::gpu() const { return impl_->device->ordinal(); }
const RecentOperations* C10dCudaCommunicator::recent_operations() const { return &impl_->watchdog.recent(); }

absl::StatusOr<Memory> C10dCudaCommunicator::Allocate(int64_t bytes) {
  return status::NoThrow("allocating on the device",
                         [&] { return impl_->device->AllocateMemory(bytes, impl_->options.stream()); });
}

absl::Status C10dCudaCommunicator::Agree(const absl::Status& own, const Signature& problem) {
  Impl& impl = *impl_;
  if (impl.size == 1) return own;
  if (impl.options.agree_on_host) {
    // A rank that found out on the device tells those that have not.
    const absl::Status lost = impl.watchdog.failure();
    return impl.options.agree_on_host(own.ok() ? lost : own, problem);
  }
  const execute::AgreementMessage message = execute::MakeAgreementMessage(own, problem, impl.agreements++);
  const absl::StatusOr<bool> captured = impl.device->IsCapturing(impl.options.stream());
  if (!captured.ok() || *captured) return own.ok() ? captured.status() : own;
  const absl::StatusOr<cuda::StreamAgreement::Room*> room = impl.agreement.Take();
  if (!room.ok()) return impl.watchdog.Fail(room.status());
  const absl::Status enqueued = impl.Operate(
      "agreement", impl.size * static_cast<int64_t>(sizeof(execute::AgreementMessage)),
      [&](cuda::CudaStream stream) { return impl.agreement.Enqueue(*room, message, nullptr, stream); },
      [&agreement = impl.agreement, room = *room] { return agreement.Judge(room); });
  if (!enqueued.ok() || own.ok()) return enqueued;
  // The others must hear of it before this rank goes on to something else.
  impl.watchdog.WaitForAll().IgnoreError();
  return own;
}

absl::StatusOr<MoveStats> C10dCudaCommunicator::ExecuteStep(const StepProgram& step,
                                                            absl::Span<const ConstTensorView> inputs,
                                                            absl::Span<const TensorView> outputs,
                                                            std::unique_ptr<StepMemo>* memo) {
  Impl& impl = *impl_;
  MoveStats moved;
  RETURN_IF_ERROR(
      impl.Operate(status::View(Name(step.op)), step.recv_bytes, [&](cuda::CudaStream stream) -> absl::Status {
        absl::StatusOr<MoveStats> done =
            cuda::ExecuteDeviceStep(step, impl.rank, inputs, outputs, *impl.device, stream, impl.transport, memo);
        if (done.ok()) moved = *done;
        return done.status();
      }));
  return moved;
}

absl::Status C10dCudaCommunicator::Barrier() {
  const absl::Status agreed = Agree(absl::OkStatus(), Signature(std::vector<Signature::Field>{{"barrier", ""}}));
  return agreed.ok() ? Wait() : agreed;
}

absl::Status C10dCudaCommunicator::Wait() { return impl_->watchdog.WaitForAll(); }

}  // namespace reshard::groups
