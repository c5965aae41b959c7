#include "runtime/torch/c10d_cuda_communicator.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/layout/no_throw.h"
#include "runtime/cuda/device_step.h"
#include "runtime/torch/c10d_device_transport.h"
#include "runtime/torch/peer_blame.h"
#include "runtime/torch/peer_board.h"
#include "runtime/torch/stream_agreement.h"
#include "runtime/torch/stream_watch.h"
#include "runtime/torch/why_not.h"

namespace reshard {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

struct C10dCudaCommunicator::Impl {
  Impl(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, std::unique_ptr<DeviceMemory> its_memory,
       std::unique_ptr<CudaDevice> its_device, C10dCudaOptions opts)
      : group(process_group),
        rank(process_group->getRank()),
        size(process_group->getSize()),
        options(std::move(opts)),
        memory(std::move(its_memory)),
        device(std::move(its_device)),
        transport(size, options.backend_of, options.timeout, device.get()),
        agreement(size, device.get(), &transport),
        watch(device.get(), options.timeout,
              [this](const StreamWatch::Operation& operation, const absl::Status& error) { Fail(operation, error); }) {
    board.OnLost([this](const std::string& message) {
      {
        const std::lock_guard<std::mutex> lock(mutex);
        told = message;
      }
      watch.Post([this, message] { Lose(absl::AbortedError(message)); });
    });
  }
  ~Impl() {
    if (Usable().ok()) watch.WaitUntilDone();
    board.OnLost(nullptr);
  }

  // One collective operation: checks, counts, and remembers how it ended. f(stream).
  template <typename T, typename F>
  T Operate(absl::string_view name, int64_t bytes, F&& f);

  absl::Status Usable();
  absl::Status Connect(CudaStream stream);
  absl::Status Meet(c10d::ProcessGroup& process_group);
  absl::Status Watch(absl::string_view name, CudaStream stream, std::function<absl::Status()> done);
  void Fail(const StreamWatch::Operation& operation, const absl::Status& error);
  void Lose(const absl::Status& status);
  absl::Status AgreeOnStream(const absl::Status& own, const Signature& problem, CudaStream stream);

  const c10::weak_intrusive_ptr<c10d::ProcessGroup> group;
  const int64_t rank;
  const int64_t size;
  const C10dCudaOptions options;
  const std::unique_ptr<DeviceMemory> memory;
  const std::unique_ptr<CudaDevice> device;
  C10dDeviceTransport transport;
  StreamAgreement agreement;
  RecentOperations recent;
  PeerBoard board;
  bool connected = false;
  int64_t operations = 0;  // begun
  std::mutex mutex;
  std::vector<PeerAddress> peers;  // empty before the ranks have met; guarded by mutex, like what follows
  absl::Status lost;
  std::string told;   // what a peer told of a failure
  StreamWatch watch;  // last: its thread uses the rest
};

absl::Status C10dCudaCommunicator::Impl::Usable() {
  watch.FindsFailure();
  const std::lock_guard<std::mutex> lock(mutex);
  if (lost.ok() && !told.empty()) return absl::AbortedError(told);
  if (lost.ok()) return absl::OkStatus();
  return absl::Status(lost.code(), absl::StrCat("this communicator was lost earlier: ", lost.message()));
}

template <typename T, typename F>
T C10dCudaCommunicator::Impl::Operate(absl::string_view name, int64_t bytes, F&& f) {
  const absl::Status usable = Usable();
  if (!usable.ok()) return usable;
  const c10::intrusive_ptr<c10d::ProcessGroup> process_group = group.lock();
  if (process_group == nullptr) return absl::UnavailableError("the process group has been destroyed");
  c10::intrusive_ptr<c10d::Backend> backend;
  const std::string reason = WhyNot([&] { backend = process_group->getBackend(options.backend_of.type()); });
  if (!reason.empty()) return absl::FailedPreconditionError(absl::StrCat("no backend for GPUs: ", reason));
  transport.Use(backend.get());
  const int64_t number = recent.Begin(name, bytes);
  ++operations;
  board.Begin(operations);
  T outcome = NoThrow("communicating", [&]() -> T {
    const CudaStream stream = options.stream();
    if (size > 1 && !connected) {
      const absl::Status status = Connect(stream);
      if (!status.ok()) return status;
    }
    return f(stream);
  });
  board.End();
  absl::Status status;
  if constexpr (std::is_same_v<T, absl::Status>) {
    status = outcome;
  } else {
    status = outcome.status();
  }
  recent.End(number, status);
  return outcome;
}

// At the first call: the ranks see that all are there, and the backend makes its connections, which takes all of them
// (later steps may concern a few).
absl::Status C10dCudaCommunicator::Impl::Connect(CudaStream stream) {
  const absl::StatusOr<bool> capturing = device->IsCapturing(stream);
  if (!capturing.ok()) return capturing.status();
  if (*capturing) {
    return absl::FailedPreconditionError(
        "the first call over a process group cannot be captured into a graph: make one before");
  }
  const c10::intrusive_ptr<c10d::ProcessGroup> process_group = group.lock();
  if (process_group == nullptr) return absl::UnavailableError("the process group has been destroyed");
  absl::Status status = Meet(*process_group);
  if (!status.ok()) {
    Lose(status);
    return status;
  }
  absl::StatusOr<DeviceBlock> tokens = device->Allocate(size + 1, stream);
  if (!tokens.ok()) return tokens.status();
  const DeviceCollective gather{tokens->data(), tokens->data() + 1, 1, DType::kU8, ReduceOp::kSum};
  status = transport.Collect(Op::kAllGather, nullptr, {&gather, 1}, stream);
  if (status.ok()) status = Watch("connecting", stream, nullptr);
  if (!status.ok()) {
    Lose(status);
    return status;
  }
  connected = true;
  // What follows is another operation.
  ++operations;
  board.Begin(operations);
  return absl::OkStatus();
}

// Everybody learns, through the store of the group, where everybody can be asked.
absl::Status C10dCudaCommunicator::Impl::Meet(c10d::ProcessGroup& process_group) {
  const c10::intrusive_ptr<c10d::Store> store = process_group.getStore();
  if (store == nullptr) return absl::OkStatus();  // then nobody can be asked, and errors say less
  const auto key = [&](int64_t r) { return absl::StrCat("reshard/gpus/", options.index, "/", r); };
  const PeerAddress own = board.address();
  const auto* const first = reinterpret_cast<const uint8_t*>(&own);
  std::string reason = WhyNot([&] { store->set(key(rank), std::vector<uint8_t>(first, first + sizeof(own))); });
  if (!reason.empty()) return absl::UnavailableError(absl::StrCat("the store of the process group: ", reason));
  const absl::Time deadline = absl::Now() + options.timeout;
  std::vector<PeerAddress> addresses(static_cast<size_t>(size));
  for (int64_t r = 0; r < size; ++r) {
    const int64_t left = std::max<int64_t>(1, absl::ToInt64Milliseconds(deadline - absl::Now()));
    std::vector<uint8_t> bytes;
    reason = WhyNot([&] {
      store->wait({key(r)}, std::chrono::milliseconds(left));
      bytes = store->get(key(r));
    });
    if (!reason.empty() && absl::Now() < deadline) {
      return absl::UnavailableError(absl::StrCat("the store of the process group: ", reason));
    }
    if (!reason.empty()) {
      return absl::DeadlineExceededError(absl::StrCat("rank ", r, " did not arrive within ",
                                                      absl::ToInt64Milliseconds(options.timeout), " ms at connecting"));
    }
    if (bytes.size() == sizeof(PeerAddress))
      std::memcpy(&addresses[static_cast<size_t>(r)], bytes.data(), bytes.size());
  }
  const std::lock_guard<std::mutex> lock(mutex);
  peers = std::move(addresses);
  return absl::OkStatus();
}

absl::Status C10dCudaCommunicator::Impl::Watch(absl::string_view name, CudaStream stream,
                                               std::function<absl::Status()> done) {
  return watch.Add(stream, {std::string(name), operations, std::move(done)});
}

// On the thread of the watch.
void C10dCudaCommunicator::Impl::Fail(const StreamWatch::Operation& operation, const absl::Status& error) {
  if (error.code() != absl::StatusCode::kDeadlineExceeded) {
    // Records that disagree, or an error of the device: then the message says it all.
    Lose(error);
    return;
  }
  std::vector<PeerAddress> known;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    known = peers;
  }
  if (known.empty()) {
    Lose(error);
    return;
  }
  Lose(BlameAnybody(known, {rank, operation.number, operation.name, options.timeout}, std::string(error.message()),
                    [this] {
                      const std::lock_guard<std::mutex> lock(mutex);
                      return told;
                    }));
}

void C10dCudaCommunicator::Impl::Lose(const absl::Status& status) {
  std::vector<PeerAddress> known;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!lost.ok()) return;
    lost = status;
    known = peers;
  }
  const std::string message(status.message());
  board.Lose(message);
  TellOthers(known, rank, message);
  WhyNot([this] {
    const c10::intrusive_ptr<c10d::ProcessGroup> process_group = group.lock();
    if (process_group != nullptr) process_group->getBackend(options.backend_of.type())->abort();
  });
}

absl::Status C10dCudaCommunicator::Impl::AgreeOnStream(const absl::Status& own, const Signature& problem,
                                                       CudaStream stream) {
  const absl::StatusOr<bool> capturing = device->IsCapturing(stream);
  if (!capturing.ok() || *capturing) return own.ok() ? capturing.status() : own;
  const StreamRecord mine = MakeStreamRecord(own, problem, operations);
  const absl::StatusOr<StreamAgreement::Round*> round = agreement.Enqueue(mine, nullptr, stream);
  absl::Status status = round.status();
  if (status.ok()) status = Watch("agreement", stream, [this, at = *round] { return agreement.Conclude(at); });
  if (!status.ok()) Lose(status);
  return own.ok() ? status : own;
}

C10dCudaCommunicator::C10dCudaCommunicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
C10dCudaCommunicator::~C10dCudaCommunicator() = default;

absl::StatusOr<std::unique_ptr<C10dCudaCommunicator>> C10dCudaCommunicator::Create(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::unique_ptr<DeviceMemory> memory,
    std::unique_ptr<CudaDevice> device, C10dCudaOptions options) {
  if (group == nullptr || device == nullptr || !options.stream) {
    return absl::InvalidArgumentError("a communicator of GPUs needs a process group, a device and a stream");
  }
  return NoThrow("making a communicator", [&]() -> absl::StatusOr<std::unique_ptr<C10dCudaCommunicator>> {
    return std::unique_ptr<C10dCudaCommunicator>(new C10dCudaCommunicator(
        std::make_unique<Impl>(group, std::move(memory), std::move(device), std::move(options))));
  });
}

int64_t C10dCudaCommunicator::rank() const { return impl_->rank; }
int64_t C10dCudaCommunicator::world_size() const { return impl_->size; }
CudaDevice& C10dCudaCommunicator::device() const { return *impl_->device; }
const RecentOperations& C10dCudaCommunicator::recent_operations() const { return impl_->recent; }

absl::StatusOr<Memory> C10dCudaCommunicator::Allocate(int64_t bytes) {
  return NoThrow("allocating on the device", [&]() -> absl::StatusOr<Memory> {
    absl::StatusOr<DeviceBlock> block = impl_->device->Allocate(bytes, impl_->options.stream());
    if (!block.ok()) return block.status();
    auto held = std::make_shared<DeviceBlock>(*std::move(block));
    void* const data = held->data();
    return Memory(data, [held = std::move(held)](void*) mutable { held.reset(); });
  });
}

absl::Status C10dCudaCommunicator::Agree(const absl::Status& own, const Signature& problem) {
  if (impl_->size == 1) return own;
  if (impl_->options.agree_on_host) {
    const absl::Status usable = impl_->Usable();
    return impl_->options.agree_on_host(own.ok() ? usable : own, problem);
  }
  return impl_->Operate<absl::Status>("agreement", sizeof(StreamRecord),
                                      [&](CudaStream stream) { return impl_->AgreeOnStream(own, problem, stream); });
}

absl::StatusOr<MoveStats> C10dCudaCommunicator::ExecuteStep(const StepProgram& step,
                                                            absl::Span<const ConstTensorView> inputs,
                                                            absl::Span<const TensorView> outputs,
                                                            std::unique_ptr<StepMemo>* memo) {
  return impl_->Operate<absl::StatusOr<MoveStats>>(
      View(Name(step.op)), step.recv_bytes, [&](CudaStream stream) -> absl::StatusOr<MoveStats> {
        absl::StatusOr<MoveStats> moved =
            ExecuteDeviceStep(step, impl_->rank, inputs, outputs, *impl_->device, stream, impl_->transport, memo);
        if (moved.ok()) {
          const absl::StatusOr<bool> capturing = impl_->device->IsCapturing(stream);
          if (capturing.ok() && *capturing) return moved;
          const absl::Status watched = impl_->Watch(View(Name(step.op)), stream, nullptr);
          if (!watched.ok()) moved = watched;
        }
        // A step that cannot be captured has sent nothing.
        const bool refused = moved.status().code() == absl::StatusCode::kFailedPrecondition;
        if (!moved.ok() && !refused && impl_->size > 1) impl_->Lose(moved.status());
        return moved;
      });
}

absl::Status C10dCudaCommunicator::Barrier() {
  if (impl_->size > 1) {
    const absl::Status enqueued = Agree(absl::OkStatus(), Signature(std::vector<Signature::Field>{{"barrier", ""}}));
    if (!enqueued.ok()) return enqueued;
  }
  return Wait();
}

absl::Status C10dCudaCommunicator::Wait() {
  impl_->watch.WaitUntilDone();
  return impl_->Usable();
}

}  // namespace reshard
