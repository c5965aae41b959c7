#include "runtime/nccl/nccl_transport.h"

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reshard/layout/text.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard::nccl {
namespace {

std::optional<NcclDataType> TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      return kNcclUint8;
    case DType::kI8:
      return kNcclInt8;
    case DType::kI32:
      return kNcclInt32;
    case DType::kU32:
      return kNcclUint32;
    case DType::kI64:
      return kNcclInt64;
    case DType::kU64:
      return kNcclUint64;
    case DType::kF16:
      return kNcclFloat16;
    case DType::kBF16:
      return kNcclBfloat16;
    case DType::kF32:
    case DType::kC64:
      return kNcclFloat32;
    case DType::kF64:
    case DType::kC128:
      return kNcclFloat64;
    default:
      return std::nullopt;  // 16-bit integers; f8, which only newer devices reduce
  }
}

bool IsComplex(DType dtype) { return dtype == DType::kC64 || dtype == DType::kC128; }
bool IsFloat(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

// Nothing where NCCL would compute something else.
std::optional<NcclRedOp> OperationFor(ReduceOp op, DType dtype) {
  switch (op) {
    case ReduceOp::kSum:
      return dtype == DType::kBool ? kNcclMax : kNcclSum;  // or
    case ReduceOp::kAvg:
      // This library sums integers exactly, then divides; in NCCL the sum may wrap.
      return IsFloat(dtype) || IsComplex(dtype) ? std::optional(kNcclAvg) : std::nullopt;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      // NaNs must propagate, which NCCL does not guarantee for floating-point numbers.
      if (IsFloat(dtype) || IsComplex(dtype)) return std::nullopt;
      return op == ReduceOp::kMin ? kNcclMin : kNcclMax;
    case ReduceOp::kProd:
      if (IsComplex(dtype)) return std::nullopt;
      return dtype == DType::kBool ? kNcclMin : kNcclProd;  // and
  }
  return std::nullopt;
}

// "{X:2,Y:4} Y", for errors.
std::string Describe(const GroupScope& scope) {
  std::string text = ToString(scope.mesh);
  for (const AxisRef& ref : scope.axes) absl::StrAppend(&text, " ", ToString(scope.mesh, ref));
  return text;
}

}  // namespace

// ncclGroupStart .. ncclGroupEnd. Ends the group whatever happens: a thread that leaves one open swallows what is
// called after it.
class NcclTransport::Group {
 public:
  explicit Group(const NcclTransport& transport) : api_(transport.api_), status_(api_.GroupStart()) {}
  ~Group() {
    if (!ended_ && status_ == kNcclSuccess) api_.GroupEnd();
  }
  NcclResult started() const { return status_; }
  NcclResult End() {
    ended_ = true;
    return api_.GroupEnd();
  }

 private:
  const NcclApi& api_;
  NcclResult status_;
  bool ended_ = false;
};

absl::Status NcclTransport::Check(NcclResult result, NcclComm comm, absl::string_view what) const {
  if (result == kNcclSuccess || result == kNcclInProgress) return absl::OkStatus();
  const char* words = api_.GetErrorString(result);
  const char* last = comm != nullptr ? api_.GetLastError(comm) : nullptr;
  std::string message = absl::StrCat(what, ": NCCL says: ", words != nullptr ? words : "an unknown error");
  if (last != nullptr && *last != '\0') absl::StrAppend(&message, " (", last, ")");
  return result == kNcclRemoteError ? absl::UnavailableError(message) : absl::InternalError(message);
}

NcclConfig NcclTransport::Config() const {
  NcclConfig config;
  config.blocking = 0;
  if (options_.max_ctas > 0) config.max_ctas = options_.max_ctas;
  return config;
}

// Waits until a call on a communicator, which goes on in the background, is done; nothing else may be called on it
// before.
absl::Status NcclTransport::Settle(NcclComm comm, absl::string_view what,
                                   absl::FunctionRef<absl::Status()> interrupted) {
  const absl::Time deadline = absl::Now() + options_.timeout;
  absl::Duration pause = absl::Microseconds(5);
  // Handing a group over takes NCCL's thread some microseconds; the shortest sleep takes fifty.
  constexpr int kYields = 200;
  for (int polls = 0;; ++polls) {
    NcclResult state = kNcclSuccess;
    {
      const status::MutexLock lock(mutex_);
      if (aborted_) return absl::AbortedError(absl::StrCat(what, ": the communicator was aborted"));
      RETURN_IF_ERROR(Check(api_.CommGetAsyncError(comm, &state), comm, what));
    }
    if (state != kNcclInProgress) return Check(state, comm, what);
    RETURN_IF_ERROR(interrupted());
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("rank ", rank_, ": ", what, " did not end within ",
                                                      absl::ToInt64Milliseconds(options_.timeout), " ms"));
    }
    if (polls < kYields) {
      std::this_thread::yield();
      continue;
    }
    absl::SleepFor(pause);
    pause = std::min(pause * 2, absl::Milliseconds(1));
  }
}

absl::Status NcclTransport::Join(const NcclUniqueId& id, absl::FunctionRef<absl::Status()> interrupted) {
  NcclComm comm = nullptr;
  {
    const status::MutexLock lock(mutex_);
    const cuda::CudaDevice::Current current(device_);
    NcclConfig config = Config();
    RETURN_IF_ERROR(Check(api_.CommInitRankConfig(&comm, static_cast<int>(size_), id, static_cast<int>(rank_), &config),
                          comm, "making a communicator"));
    world_ = comm;
  }
  return Settle(comm, "making a communicator", interrupted);
}

NcclTransport::~NcclTransport() {
  const status::MutexLock lock(mutex_);
  if (aborted_ || graphs_.alive() > 0) return;
  const cuda::CudaDevice::Current current(device_);
  for (NcclComm comm : Communicators()) {
    NcclResult state = api_.CommFinalize(comm);
    // The others finalize, too; one that is gone must not keep this one.
    const absl::Time deadline = absl::Now() + std::min(options_.timeout, absl::Seconds(10));
    while (state == kNcclInProgress && absl::Now() < deadline) {
      absl::SleepFor(absl::Microseconds(100));
      if (api_.CommGetAsyncError(comm, &state) != kNcclSuccess) break;
    }
    state == kNcclSuccess ? api_.CommDestroy(comm) : api_.CommAbort(comm);
  }
}

absl::Status NcclTransport::Exchange(absl::Span<const cuda::DeviceSend> sends,
                                     absl::Span<const cuda::DeviceReceive> receives, cuda::CudaStream stream) {
  return cuda::InRounds(sends, receives, rank_, size_, options_.max_peers,
                        [&](absl::Span<const cuda::DeviceSend> some, absl::Span<const cuda::DeviceReceive> others) {
                          return ExchangeOnce(some, others, stream);
                        });
}

absl::Status NcclTransport::ExchangeOnce(absl::Span<const cuda::DeviceSend> sends,
                                         absl::Span<const cuda::DeviceReceive> receives, cuda::CudaStream stream) {
  {
    const status::MutexLock lock(mutex_);
    if (aborted_) return absl::AbortedError("the communicator was aborted");
    const cuda::CudaDevice::Current current(device_);
    Group group(*this);
    absl::Status status = Check(group.started(), world_, "an exchange");
    for (size_t i = 0; i < receives.size() && status.ok(); ++i) {
      status = Check(api_.Recv(receives[i].data, static_cast<size_t>(receives[i].bytes), kNcclInt8,
                               static_cast<int>(receives[i].peer), world_, stream),
                     world_, "a receive");
    }
    for (size_t i = 0; i < sends.size() && status.ok(); ++i) {
      status = Check(api_.Send(sends[i].data, static_cast<size_t>(sends[i].bytes), kNcclInt8,
                               static_cast<int>(sends[i].peer), world_, stream),
                     world_, "a send");
    }
    if (!status.ok()) return status;
    status = Check(group.End(), world_, "an exchange");
    if (!status.ok()) return status;
  }
  return Settle(world_, "an exchange", interrupted_);
}

absl::StatusOr<void*> NcclTransport::GroupFor(const StepProgram& step) {
  if (!step.scope || step.group_size < 2) return nullptr;
  if (step.op == Op::kAllToAll && api_.AlltoAll == nullptr) return nullptr;
  NcclComm* part = nullptr;
  {
    const status::MutexLock lock(mutex_);
    if (aborted_) return absl::AbortedError("the communicator was aborted");
    const auto found = std::find_if(groups_.begin(), groups_.end(),
                                    [&](const ScopedComm& group) { return group.scope == *step.scope; });
    if (found != groups_.end()) return found->comm;
    // The whole world in its own order: every rank is in the one group there is, and sees the same.
    if (step.group_size == size_ && std::is_sorted(step.group.begin(), step.group.end())) {
      groups_.push_back({*step.scope, "", world_});
      return world_;
    }
  }
  RETURN_IF_ERROR(drain_());
  std::string name = Describe(*step.scope);
  const std::string what = absl::StrCat("splitting off ", name);
  {
    const status::MutexLock lock(mutex_);
    if (aborted_) return absl::AbortedError("the communicator was aborted");
    const cuda::CudaDevice::Current current(device_);
    const int color = step.group.empty() ? kNcclSplitNoColor
                                         : static_cast<int>(*std::min_element(step.group.begin(), step.group.end()));
    NcclConfig config = Config();
    part = &split_off_.emplace_back(nullptr);
    RETURN_IF_ERROR(
        Check(api_.CommSplit(world_, color, static_cast<int>(step.group_index), part, &config), world_, what));
  }
  absl::Status settled = Settle(world_, what, interrupted_);
  if (!settled.ok()) return settled;
  {
    // From here on Abort ends it, too.
    const status::MutexLock lock(mutex_);
    if (aborted_) return absl::AbortedError("the communicator was aborted");
    groups_.push_back({*step.scope, std::move(name), *part});
  }
  if (*part != nullptr) settled = Settle(*part, what, interrupted_);
  if (!settled.ok()) return settled;
  return *part;
}

bool NcclTransport::Reduces(ReduceOp op, DType dtype) const {
  return options_.native_reductions && TypeOf(dtype).has_value() && OperationFor(op, dtype).has_value();
}

absl::Status NcclTransport::Call(Op op, NcclComm comm, const cuda::DeviceCollective& call,
                                 cuda::CudaStream stream) const {
  const auto count = static_cast<size_t>(call.count);
  if (op == Op::kAllGather) {
    return Check(api_.AllGather(call.send, call.receive, count, kNcclInt8, comm, stream), comm, "an all-gather");
  }
  if (op == Op::kAllToAll) {
    return Check(api_.AlltoAll(call.send, call.receive, count, kNcclInt8, comm, stream), comm, "an all-to-all");
  }
  // The real and the imaginary parts of complex numbers are summed like numbers of their own.
  const size_t numbers = IsComplex(call.dtype) ? 2 * count : count;
  const NcclDataType type = *TypeOf(call.dtype);
  const NcclRedOp reduce = *OperationFor(call.reduce, call.dtype);
  if (op == Op::kReduceScatter) {
    return Check(api_.ReduceScatter(call.send, call.receive, numbers, type, reduce, comm, stream), comm,
                 "a reduce-scatter");
  }
  return Check(api_.AllReduce(call.send, call.receive, numbers, type, reduce, comm, stream), comm, "an all-reduce");
}

absl::Status NcclTransport::Collect(Op op, void* group_comm, absl::Span<const cuda::DeviceCollective> calls,
                                    cuda::CudaStream stream) {
  NcclComm comm = group_comm;
  {
    const status::MutexLock lock(mutex_);
    if (aborted_) return absl::AbortedError("the communicator was aborted");
    const cuda::CudaDevice::Current current(device_);
    Group group(*this);
    absl::Status status = Check(group.started(), comm, "a collective");
    for (size_t i = 0; i < calls.size() && status.ok(); ++i) status = Call(op, comm, calls[i], stream);
    if (!status.ok()) return status;
    status = Check(group.End(), comm, "a collective");
    if (!status.ok()) return status;
  }
  return Settle(comm, "a collective", interrupted_);
}

absl::Status NcclTransport::AsyncError() {
  const status::MutexLock lock(mutex_);
  if (aborted_ || world_ == nullptr) return absl::OkStatus();
  NcclResult state = kNcclSuccess;
  absl::Status status = Check(api_.CommGetAsyncError(world_, &state), world_, "NCCL");
  if (status.ok()) status = Check(state, world_, "NCCL");
  for (const auto& [scope, name, comm] : groups_) {
    if (!status.ok()) break;
    if (comm == nullptr || comm == world_) continue;
    status = Check(api_.CommGetAsyncError(comm, &state), comm, name);
    if (status.ok()) status = Check(state, comm, name);
  }
  return status;
}

void NcclTransport::Abort() {
  std::vector<NcclComm> comms;
  {
    const status::MutexLock lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
    comms = Communicators();
  }
  // Not under the lock: a thread that asks for errors meanwhile must get them.
  const auto abort = [&api = api_](NcclComm comm) { api.CommAbort(comm); };
  if (graphs_.alive() == 0) {
    const cuda::CudaDevice::Current current(device_);
    for (NcclComm comm : comms) abort(comm);
    return;
  }
  // What runs ends at once, but the call returns only when the graphs are gone.
  status::NoThrow("aborting", [&]() -> absl::Status {
    for (NcclComm comm : comms) std::thread(abort, comm).detach();
    return absl::OkStatus();
  }).IgnoreError();
}

std::vector<NcclComm> NcclTransport::Communicators() const {
  std::vector<NcclComm> comms;
  for (const ScopedComm& group : groups_) {
    if (group.comm != nullptr && group.comm != world_) comms.push_back(group.comm);
  }
  if (world_ != nullptr) comms.push_back(world_);
  return comms;
}

absl::Status NcclTransport::CapturedOn(cuda::CudaStream stream) { return graphs_.Add(device_, stream); }

int64_t NcclTransport::splits() const {
  const status::MutexLock lock(mutex_);
  return std::count_if(groups_.begin(), groups_.end(), [this](const auto& entry) { return entry.comm != world_; });
}

}  // namespace reshard::nccl
