#include "runtime/cuda/device_step.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/cuda/device_program.h"
#include "runtime/host/reduce.h"
#include "status/macros.h"

namespace reshard::cuda {
namespace {

// With fewer members, what a rank keeps is too large a part of the whole to send it through the staging of a
// collective; sends and receives are the same kernels of NCCL.
constexpr int64_t kLeastAllToAll = 4;

std::vector<Dims> StridesOf(absl::Span<const ConstTensorView> inputs, absl::Span<const TensorView> outputs) {
  std::vector<Dims> strides;
  strides.reserve(inputs.size() + outputs.size());
  for (const ConstTensorView& view : inputs) strides.push_back(view.strides);
  for (const TensorView& view : outputs) strides.push_back(view.strides);
  return strides;
}

bool IsFor(const DeviceProgram& program, absl::Span<const ConstTensorView> inputs,
           absl::Span<const TensorView> outputs) {
  const auto same = [](const auto& view, const Dims& strides) { return view.strides == strides; };
  const auto outputs_at = program.strides.begin() + static_cast<std::ptrdiff_t>(inputs.size());
  return std::equal(inputs.begin(), inputs.end(), program.strides.begin(), same) &&
         std::equal(outputs.begin(), outputs.end(), outputs_at, same);
}

// The same on all ranks.
bool WantsGroup(const StepProgram& step) {
  switch (step.op) {
    case Op::kAllGather:
    case Op::kReduceScatter:
    case Op::kAllReduce:
      return step.group_size > 1;
    case Op::kAllToAll:
      return step.group_size >= kLeastAllToAll;
    default:
      return false;
  }
}

absl::StatusOr<std::unique_ptr<DeviceProgram>> Prepare(const StepProgram& step, int64_t rank,
                                                       absl::Span<const ConstTensorView> inputs,
                                                       absl::Span<const TensorView> outputs, CudaDevice& device,
                                                       DeviceTransport& transport) {
  DevicePreparation preparation{step, rank, inputs, outputs, nullptr, {}, {}};
  preparation.program.strides = StridesOf(inputs, outputs);
  const bool native = std::all_of(step.tensors.begin(), step.tensors.end(), [&](const StepTensor& tensor) {
    return !Reduces(step.op) || transport.Reduces(tensor.reduce, tensor.dtype);
  });
  if (WantsGroup(step) && native) {
    ASSIGN_OR_RETURN(void* const group, transport.GroupFor(step));
    preparation.group = group;
  }
  const auto by_collective = [&] {
    if (preparation.group == nullptr) return false;
    return step.op == Op::kReduceScatter ? PrepareCollectiveReduceScatter(preparation)
                                         : PrepareCollectiveMoves(preparation);
  };
  if (step.op == Op::kAllReduce) {
    PrepareAllReduce(preparation, native);
  } else if (!by_collective()) {
    PrepareExchange(preparation);
  }
  for (DeviceAction& action : preparation.program.actions) {
    absl::Status status;
    const auto upload = [&](auto& launch) {
      absl::StatusOr<UploadedTable> uploaded = device.Upload(launch.table);
      status = uploaded.status();
      if (status.ok()) launch.uploaded = *std::move(uploaded);
      launch.table = {};  // the device has it now
    };
    if (auto* copies = std::get_if<LaunchCopies>(&action)) upload(*copies);
    if (auto* reductions = std::get_if<LaunchReductions>(&action)) upload(*reductions);
    if (!status.ok()) return status;
  }
  return std::make_unique<DeviceProgram>(std::move(preparation.program));
}

// Enqueues the actions, with the addresses of one call.
struct Enqueue {
  CudaDevice& device;
  CudaStream stream;
  DeviceTransport& transport;
  std::vector<void*> bases;

  char* At(const MemoryOffset& place) const { return static_cast<char*>(bases[place.base]) + place.offset; }
  // A table names the first bases only, up to the last one that it uses.
  absl::Span<void* const> First(int count) const {
    return absl::MakeConstSpan(bases).first(static_cast<size_t>(count));
  }

  absl::Status operator()(LaunchCopies& launch) const {
    return device.Launch(launch.uploaded, First(launch.uploaded.bases()), stream);
  }
  absl::Status operator()(LaunchReductions& launch) const {
    return device.Launch(launch.uploaded, First(launch.uploaded.bases()), stream);
  }
  absl::Status operator()(const CopyBytes& copy) const {
    return device.Copy(At(copy.to), At(copy.from), copy.bytes, stream);
  }
  absl::Status operator()(const ExchangeMessages& exchange) const {
    std::vector<DeviceSend> sends;
    std::vector<DeviceReceive> receives;
    sends.reserve(exchange.sends.size());
    receives.reserve(exchange.receives.size());
    for (const auto& message : exchange.sends) sends.push_back({message.peer, At(message.place), message.bytes});
    for (const auto& message : exchange.receives) receives.push_back({message.peer, At(message.place), message.bytes});
    return transport.Exchange(sends, receives, stream);
  }
  absl::Status operator()(const CallCollective& collective) const {
    std::vector<DeviceCollective> calls;
    calls.reserve(collective.calls.size());
    for (const auto& call : collective.calls) {
      calls.push_back({At(call.send), At(call.receive), call.count, call.dtype, call.reduce});
    }
    return transport.Collect(collective.op, collective.group, calls, stream);
  }
};

}  // namespace

absl::StatusOr<MoveStats> ExecuteDeviceStep(const StepProgram& step, int64_t rank,
                                            absl::Span<const ConstTensorView> inputs,
                                            absl::Span<const TensorView> outputs, CudaDevice& device, CudaStream stream,
                                            DeviceTransport& transport, std::unique_ptr<StepMemo>* memo) {
  if (inputs.size() != step.tensors.size() || outputs.size() != step.tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the step has ", step.tensors.size(), " tensors, got ",
                                                   inputs.size(), " inputs and ", outputs.size(), " outputs"));
  }
  std::unique_ptr<StepMemo> own_memo;
  std::unique_ptr<StepMemo>& kept = memo != nullptr ? *memo : own_memo;
  auto* program = dynamic_cast<DeviceProgram*>(kept.get());
  if (program == nullptr || !IsFor(*program, inputs, outputs)) {
    ASSIGN_OR_RETURN(const bool captured, device.IsCapturing(stream));
    if (captured) {
      return absl::FailedPreconditionError(
          "the stream is being captured, but this redistribution has not been run before with tensors of these "
          "strides; "
          "run it once, then capture it");
    }
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceProgram> prepared, Prepare(step, rank, inputs, outputs, device, transport));
    program = prepared.get();
    kept = std::move(prepared);
  }

  constexpr int64_t kAlignment = 256;
  std::vector<int64_t> places;
  int64_t bytes = 0;
  for (int64_t block : program->staging) {
    places.push_back(bytes);
    bytes += (block + kAlignment - 1) / kAlignment * kAlignment;
  }
  absl::StatusOr<DeviceBlock> staging = device.Allocate(bytes, stream);
  if (!staging.ok()) {
    return absl::Status(staging.status().code(), absl::StrCat("staging: ", staging.status().message()));
  }
  Enqueue enqueue{device, stream, transport, {}};
  enqueue.bases.reserve(inputs.size() + outputs.size() + places.size());
  for (const ConstTensorView& view : inputs) enqueue.bases.push_back(const_cast<void*>(view.data));
  for (const TensorView& view : outputs) enqueue.bases.push_back(view.data);
  for (int64_t place : places) enqueue.bases.push_back(staging->data() + place);
  for (DeviceAction& action : program->actions) {
    RETURN_IF_ERROR(std::visit(enqueue, action));
  }
  return program->stats;
}

}  // namespace reshard::cuda
