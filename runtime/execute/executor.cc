#include "reshard/runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/execute/agreement.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard {
namespace {

// `name` is the source or the target, of tensor `index` when there are several (index >= 0).
absl::Status CheckView(absl::string_view side, int64_t index, const ConstTensorView& view, const Buffer& buffer,
                       MemoryKind memory) {
  const auto name = [&] { return index < 0 ? std::string(side) : absl::StrCat(side, " of tensor ", index); };
  const auto shape = [](const Dims& dims) { return absl::StrCat("[", absl::StrJoin(dims, ", "), "]"); };
  const bool empty = view.data == nullptr || NumElements(view.shape) == 0;
  if (!buffer.held || buffer.bytes == 0) {
    if (empty) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("the ", name(), " has shape ", shape(view.shape),
                                                   ", but this rank holds ",
                                                   buffer.held ? "no elements" : "nothing: it is outside the mesh"));
  }
  if (view.dtype != buffer.dtype) {
    return absl::InvalidArgumentError(absl::StrCat("the ", name(), " is ", status::View(Name(view.dtype)),
                                                   ", the plan is for ", status::View(Name(buffer.dtype))));
  }
  if (view.shape != buffer.shape) {
    return absl::InvalidArgumentError(absl::StrCat("the ", name(), " has shape ", shape(view.shape),
                                                   "; its layout gives this rank ", shape(buffer.shape)));
  }
  if (view.strides.size() != view.shape.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", name(), " has ", view.strides.size(), " strides for ", view.shape.size(), " dimensions"));
  }
  if (view.data == nullptr) return absl::InvalidArgumentError(absl::StrCat("the ", name(), " is null"));
  if (view.memory != memory) {
    const auto place = [](MemoryKind kind) { return kind == MemoryKind::kHost ? "host memory" : "memory of a GPU"; };
    return absl::InvalidArgumentError(
        absl::StrCat("the ", name(), " is in ", place(view.memory), ", the communicator moves ", place(memory)));
  }
  return absl::OkStatus();
}

// The bytes that a view spans.
struct Extent {
  std::pair<const char*, const char*> bytes;
  bool target = false;
  int64_t index = 0;  // of the tensor
};

// A target that shares bytes with another view, and that view; nullopt if there is none. Sources may share bytes with
// each other: they are only read. One sweep by address is enough, since it remembers the farthest end of each kind so
// far.
std::optional<std::pair<Extent, Extent>> TargetThatOverlaps(std::vector<Extent>& extents) {
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.bytes < b.bytes; });
  Extent farthest_source, farthest_target;
  for (const Extent& extent : extents) {
    const char* const first = extent.bytes.first;
    if (first < farthest_target.bytes.second) return std::pair(farthest_target, extent);
    if (extent.target && first < farthest_source.bytes.second) return std::pair(extent, farthest_source);
    Extent& farthest = extent.target ? farthest_target : farthest_source;
    if (farthest.bytes.second < extent.bytes.second) farthest = extent;
  }
  return std::nullopt;
}

// The part of a view that the buffer stands for, which is a chunk's part of it. It has elements.
template <typename View>
View PartOf(View view, const Buffer& buffer) {
  const ChunkPart& part = buffer.part;
  const int64_t stride = view.strides[part.dim];
  const int64_t offset = part.first * stride * SizeOf(view.dtype);
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view.data)>>, const char, char>;
  view.data = static_cast<Byte*>(view.data) + offset;
  view.shape = buffer.shape;
  view.strides[part.dim] = stride * part.block;
  view.strides.insert(view.strides.begin() + part.dim + 1, stride);
  return view;
}

// Whether the caller's views can be passed to the only step as they are, without the lists that RunSteps makes
// otherwise.
bool SourcesToTargetsInOneStep(const Program& program) {
  if (program.steps.size() != 1) return false;
  const std::vector<StepTensor>& tensors = program.steps[0].tensors;
  if (static_cast<int64_t>(tensors.size()) != program.tensors) return false;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const auto source = static_cast<int>(2 * t);
    if (tensors[t].input != source || tensors[t].output != source + 1) return false;
    if (program.buffers[2 * t].bytes == 0 || program.buffers[2 * t + 1].bytes == 0) return false;
  }
  return true;
}

}  // namespace

Agreement DefaultAgreement() {
  const char* text = std::getenv("RESHARD_AGREEMENT");
  return text != nullptr && absl::string_view(text) == "off" ? Agreement::kOff : Agreement::kEveryCall;
}

absl::StatusOr<Executor> Executor::Create(std::shared_ptr<const Program> program, Communicator* communicator,
                                          Agreement agreement) {
  if (program == nullptr || communicator == nullptr) {
    return absl::InvalidArgumentError("an executor needs a program and a communicator");
  }
  if (program->rank != communicator->rank()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the program is for rank ", program->rank, ", the communicator is rank ", communicator->rank()));
  }
  Executor executor;
  executor.communicator_ = communicator;
  executor.agreement_ = agreement;
  executor.one_step_ = SourcesToTargetsInOneStep(*program);
  executor.memos_.resize(program->steps.size());
  executor.program_ = std::move(program);
  return executor;
}

absl::Status Executor::Check(absl::Span<const ConstTensorView> sources, absl::Span<const TensorView> targets,
                             bool targets_are_fresh, int64_t first) const {
  const auto tensors = static_cast<size_t>(program_->tensors);
  if (sources.size() != tensors || targets.size() != tensors) {
    return absl::InvalidArgumentError(absl::StrCat("the program is for ", tensors, " tensors, got ", sources.size(),
                                                   " sources and ", targets.size(), " targets"));
  }
  std::vector<Extent> extents;
  if (!targets_are_fresh) extents.reserve(2 * tensors);
  for (size_t t = 0; t < tensors; ++t) {
    const int64_t index = tensors == 1 && first == 0 ? -1 : first + static_cast<int64_t>(t);
    const Buffer& source_buffer = program_->source(static_cast<int64_t>(t));
    const Buffer& target_buffer = program_->target(static_cast<int64_t>(t));
    absl::Status status = CheckView("source", index, sources[t], source_buffer, communicator_->memory());
    if (!status.ok()) return status;
    status = CheckView("target", index, targets[t], target_buffer, communicator_->memory());
    if (!status.ok()) return status;
    if (targets_are_fresh) continue;
    if (target_buffer.bytes > 0 && MayOverlapItself(targets[t])) {
      return absl::InvalidArgumentError("the target's strides let elements overlap");
    }
    if (source_buffer.bytes > 0) extents.push_back({ByteSpan(sources[t]), false, first + static_cast<int64_t>(t)});
    if (target_buffer.bytes > 0) extents.push_back({ByteSpan(targets[t]), true, first + static_cast<int64_t>(t)});
  }
  const auto overlap = TargetThatOverlaps(extents);
  if (!overlap) return absl::OkStatus();
  if (tensors == 1 && first == 0) return absl::InvalidArgumentError("source and target share memory");
  const auto& [target, other] = *overlap;
  return absl::InvalidArgumentError(absl::StrCat("the target of tensor ", target.index, " shares memory with the ",
                                                 other.target ? "target" : "source", " of tensor ", other.index));
}

absl::StatusOr<ExecuteResult> Executor::Execute(const ConstTensorView& source, const TensorView& target) {
  return ExecuteBatch(absl::MakeConstSpan(&source, 1), absl::MakeConstSpan(&target, 1));
}

absl::StatusOr<ExecuteResult> Executor::ExecuteBatch(absl::Span<const ConstTensorView> sources,
                                                     absl::Span<const TensorView> targets) {
  const auto start = std::chrono::steady_clock::now();
  if (!failure_.ok()) return execute::FailedEarlier("executor", failure_);
  // A rank whose views are wrong takes part in the agreement all the same, so that the others get its error instead of
  // waiting for it.
  const absl::Status checked = status::NoThrow("checking the tensors", [&] { return Check(sources, targets); });
  if (agreement_ == Agreement::kEveryCall) {
    RETURN_IF_ERROR(checked.ok() ? AgreeBefore(sources, program_->signature)
                                 : communicator_->Agree(checked, program_->signature));
  } else if (!checked.ok()) {
    return checked;
  }
  absl::StatusOr<ExecuteResult> result = ExecuteChecked(sources, targets);
  if (!result.ok()) return result;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  result->seconds = seconds.count();
  return result;
}

absl::Status Executor::AgreeBefore(absl::Span<const ConstTensorView> sources, const Signature& problem) {
  if (program_->steps.empty()) return communicator_->Agree(absl::OkStatus(), problem);
  const StepProgram& first = program_->steps[0];
  if (one_step_) return communicator_->AgreeBefore(first, sources, problem);
  return status::NoThrow("agreeing", [&] {
    std::vector<ConstTensorView> inputs;
    for (const StepTensor& tensor : first.tensors) {
      const Buffer& input = program_->buffers[tensor.input];
      inputs.push_back(
          SourceFor(tensor, sources).value_or(DenseView(static_cast<const void*>(nullptr), input.dtype, input.shape)));
    }
    return communicator_->AgreeBefore(first, inputs, problem);
  });
}

// The input of a step if it is one of the sources, or a chunk's part of one, and has elements; else nullopt.
std::optional<ConstTensorView> Executor::SourceFor(const StepTensor& tensor,
                                                   absl::Span<const ConstTensorView> sources) const {
  const Buffer& input = program_->buffers[tensor.input];
  const int end = input.part.of >= 0 ? input.part.of : tensor.input;
  if (end >= 2 * program_->tensors || end % 2 != 0 || input.bytes == 0) return std::nullopt;
  const ConstTensorView& source = sources[end / 2];
  return input.part.of >= 0 ? PartOf(source, input) : source;
}

absl::StatusOr<ExecuteResult> Executor::ExecuteChecked(absl::Span<const ConstTensorView> sources,
                                                       absl::Span<const TensorView> targets) {
  const auto start = std::chrono::steady_clock::now();
  if (!failure_.ok()) return execute::FailedEarlier("executor", failure_);
  absl::StatusOr<MoveStats> moved = status::NoThrow("executing a plan", [&] { return RunSteps(sources, targets); });
  if (!moved.ok()) {
    // Other ranks may be anywhere in their steps, so that a further call could not match theirs.
    failure_ = moved.status();
    return failure_;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return ExecuteResult{*moved, seconds.count()};
}

absl::StatusOr<MoveStats> Executor::RunSteps(absl::Span<const ConstTensorView> sources,
                                             absl::Span<const TensorView> targets) {
  if (one_step_) return communicator_->ExecuteStep(program_->steps[0], sources, targets, &memos_[0]);
  // Two blocks are enough for any number of steps: a step reads one and writes the other.
  Memory scratch[2];
  for (size_t i = 0; i < 2; ++i) {
    if (program_->scratch_bytes[i] == 0) continue;
    absl::StatusOr<Memory> block = communicator_->Allocate(program_->scratch_bytes[i]);
    if (!block.ok()) {
      return absl::Status(block.status().code(), absl::StrCat("an intermediate: ", block.status().message()));
    }
    scratch[i] = *std::move(block);
  }
  const auto ends = static_cast<int>(2 * program_->tensors);
  const auto view = [&](int index) -> TensorView {
    const Buffer& buffer = program_->buffers[index];
    // Fragments without elements may come in any form; the steps see the shapes of the program.
    if (buffer.bytes == 0) return DenseView(static_cast<void*>(nullptr), buffer.dtype, buffer.shape);
    if (buffer.part.of >= 0) return PartOf(targets[buffer.part.of / 2], buffer);
    if (index < ends) return targets[index / 2];
    TensorView dense =
        DenseView(static_cast<void*>(static_cast<char*>(scratch[buffer.scratch].get()) + buffer.scratch_offset),
                  buffer.dtype, buffer.shape);
    dense.memory = communicator_->memory();
    return dense;
  };
  MoveStats moved;
  std::vector<ConstTensorView> inputs;
  std::vector<TensorView> outputs;
  for (size_t s = 0; s < program_->steps.size(); ++s) {
    const StepProgram& step = program_->steps[s];
    inputs.clear();
    outputs.clear();
    for (const StepTensor& tensor : step.tensors) {
      const std::optional<ConstTensorView> source = SourceFor(tensor, sources);
      inputs.push_back(source ? *source : view(tensor.input));
      outputs.push_back(view(tensor.output));
    }
    ASSIGN_OR_RETURN(const MoveStats step_moved, communicator_->ExecuteStep(step, inputs, outputs, &memos_[s]));
    moved += step_moved;
  }
  return moved;
}

}  // namespace reshard
