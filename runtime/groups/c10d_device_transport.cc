#include "runtime/groups/c10d_device_transport.h"

#include <ATen/Functions.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/groups/scalar_types.h"
#include "runtime/groups/why_not.h"
#include "status/macros.h"

namespace reshard::groups {
namespace {

// Distinct from the tags of C10dMessages, which may use the same backend for host memory.
constexpr int kTag = 0x20000001;

c10d::ReduceOp ReductionOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kAvg:
      return c10d::ReduceOp::AVG;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kProd:
      return c10d::ReduceOp::PRODUCT;
  }
  return c10d::ReduceOp::SUM;
}

absl::Status Failed(absl::string_view what, const std::string& reason) {
  if (reason.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(what, " of the process group failed: ", reason.substr(0, 500)));
}

}  // namespace

// All calls of the backend while it lives become one launch; End hands it over. An exception on the way must not leave
// the group of calls open.
class C10dDeviceTransport::Coalesced {
 public:
  explicit Coalesced(c10d::Backend* backend) : backend_(*backend) { backend_.startCoalescing(); }
  ~Coalesced() {
    if (!ended_) WhyNot([this] { backend_.endCoalescing(); });
  }
  // For a launch with something in it. A caller that went on without its work object would read data that has not
  // arrived.
  c10::intrusive_ptr<c10d::Work> End() {
    ended_ = true;
    c10::intrusive_ptr<c10d::Work> work = backend_.endCoalescing();
    TORCH_CHECK(work != nullptr, "the backend ", backend_.getBackendName(), " has no work object for several calls");
    return work;
  }

 private:
  c10d::Backend& backend_;
  bool ended_ = false;
};

void C10dDeviceTransport::Use(c10d::Backend* backend) {
  backend_ = backend;
  is_nccl_ = backend->getBackendName() == "nccl";
}

at::Tensor C10dDeviceTransport::Over(const void* data, int64_t elements, DType dtype) const {
  // With the device given, torch does not ask the driver where the memory is.
  return at::for_blob(const_cast<void*>(data), {elements})
      .options(at::TensorOptions(ScalarTypeOf(dtype)).device(where_))
      .target_device(where_)
      .make_tensor();
}

absl::Status C10dDeviceTransport::Prepare(cuda::CudaStream stream) {
  if (where_.is_cuda()) return absl::OkStatus();
  const cuda::CudaDevice::Current current(device_);
  return cuda::CudaStatus(device_.api(), device_.api().StreamSynchronize(stream), "waiting for the stream");
}

void C10dDeviceTransport::Wait(const c10::intrusive_ptr<c10d::Work>& work) const {
  if (work == nullptr) return;
  if (where_.is_cuda()) {
    // With a timeout the host would wait.
    work->wait();
    return;
  }
  const bool done = work->wait(std::chrono::milliseconds(std::max<int64_t>(1, absl::ToInt64Milliseconds(timeout_))));
  TORCH_CHECK(done, "the time was over");
}

absl::Status C10dDeviceTransport::Exchange(absl::Span<const cuda::DeviceSend> sends,
                                           absl::Span<const cuda::DeviceReceive> receives, cuda::CudaStream stream) {
  if (sends.empty() && receives.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(Prepare(stream));
  return cuda::InRounds(sends, receives, rank_, size_, max_peers_,
                        [&](absl::Span<const cuda::DeviceSend> some, absl::Span<const cuda::DeviceReceive> others) {
                          return ExchangeOnce(some, others);
                        });
}

absl::Status C10dDeviceTransport::ExchangeOnce(absl::Span<const cuda::DeviceSend> sends,
                                               absl::Span<const cuda::DeviceReceive> receives) {
  std::vector<std::vector<at::Tensor>> tensors;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  return Failed("an exchange", WhyNot([&] {
                  const auto post = [&] {
                    for (const cuda::DeviceReceive& receive : receives) {
                      tensors.push_back({Over(receive.data, receive.bytes, DType::kU8)});
                      works.push_back(backend_->recv(tensors.back(), static_cast<int>(receive.peer), kTag));
                    }
                    for (const cuda::DeviceSend& send : sends) {
                      tensors.push_back({Over(send.data, send.bytes, DType::kU8)});
                      works.push_back(backend_->send(tensors.back(), static_cast<int>(send.peer), kTag));
                    }
                  };
                  if (backend_->supportsCoalescing()) {
                    Coalesced together(backend_);
                    post();
                    Wait(together.End());
                  } else {
                    post();
                    for (const c10::intrusive_ptr<c10d::Work>& work : works) Wait(work);
                  }
                }));
}

absl::StatusOr<void*> C10dDeviceTransport::GroupFor(const StepProgram& step) {
  if (static_cast<int64_t>(step.group.size()) != size_ || size_ < 2) return nullptr;
  for (size_t i = 0; i < step.group.size(); ++i) {
    if (step.group[i] != static_cast<int64_t>(i)) return nullptr;
  }
  return static_cast<void*>(backend_);
}

// The types that torch hands to NCCL as they are. Not min and max of floats, which must propagate NaNs, nor averages of
// integers, which round toward zero.
bool C10dDeviceTransport::Reduces(ReduceOp op, DType dtype) const {
  const bool sums = op == ReduceOp::kSum || op == ReduceOp::kProd;
  switch (dtype) {
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32:
    case DType::kF64:
      return sums || (op == ReduceOp::kAvg && is_nccl_);
    case DType::kI8:
    case DType::kU8:
    case DType::kI32:
    case DType::kI64:
      return sums || op == ReduceOp::kMin || op == ReduceOp::kMax;
    default:
      return false;
  }
}

absl::Status C10dDeviceTransport::Collect(Op op, void* /*group*/, absl::Span<const cuda::DeviceCollective> calls,
                                          cuda::CudaStream stream) {
  if (calls.empty()) return absl::OkStatus();
  if (op == Op::kAllReduce) {
    // It happens in place. The copies come before a launch of many, not within it.
    for (const cuda::DeviceCollective& call : calls) {
      if (call.send == call.receive) continue;
      RETURN_IF_ERROR(device_.Copy(call.receive, call.send, call.count * SizeOf(call.dtype), stream));
    }
  }
  RETURN_IF_ERROR(Prepare(stream));
  absl::Status status;
  const bool together = calls.size() > 1 && backend_->supportsCoalescing();
  const std::string reason = WhyNot([&] {
    if (!together) {
      for (const cuda::DeviceCollective& call : calls) {
        status = CollectOne(op, call, true);
        if (!status.ok()) return;
      }
      return;
    }
    Coalesced launch(backend_);
    for (const cuda::DeviceCollective& call : calls) {
      status = CollectOne(op, call, false);
      if (!status.ok()) return;
    }
    Wait(launch.End());
  });
  return status.ok() ? Failed("a collective", reason) : status;
}

// `alone`: outside a launch of many, on the current stream itself. The work of the others is that of the launch.
absl::Status C10dDeviceTransport::CollectOne(Op op, const cuda::DeviceCollective& call, bool alone) {
  c10::intrusive_ptr<c10d::Work> work;
  switch (op) {
    case Op::kAllGather: {
      at::Tensor in = Over(call.send, call.count, call.dtype);
      at::Tensor out = Over(call.receive, call.count * size_, call.dtype);
      c10d::AllgatherOptions options;
      options.asyncOp = !alone;
      work = backend_->_allgather_base(out, in, options);
      break;
    }
    case Op::kAllToAll: {
      at::Tensor in = Over(call.send, call.count * size_, call.dtype);
      at::Tensor out = Over(call.receive, call.count * size_, call.dtype);
      std::vector<int64_t> equal;
      c10d::AllToAllOptions options;
      options.asyncOp = !alone;
      work = backend_->alltoall_base(out, in, equal, equal, options);
      break;
    }
    case Op::kReduceScatter: {
      at::Tensor in = Over(call.send, call.count * size_, call.dtype);
      at::Tensor out = Over(call.receive, call.count, call.dtype);
      c10d::ReduceScatterOptions options;
      options.reduceOp = ReductionOf(call.reduce);
      options.asyncOp = !alone;
      work = backend_->_reduce_scatter_base(out, in, options);
      break;
    }
    case Op::kAllReduce: {
      std::vector<at::Tensor> tensors = {Over(call.receive, call.count, call.dtype)};
      c10d::AllreduceOptions options;
      options.reduceOp = ReductionOf(call.reduce);
      options.asyncOp = !alone;
      work = backend_->allreduce(tensors, options);
      break;
    }
    default:
      return absl::InternalError(absl::StrCat("no collective for operation ", static_cast<int>(op)));
  }
  if (alone) Wait(work);
  return absl::OkStatus();
}

}  // namespace reshard::groups
