#include "reshard/runtime/executor.h"

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/core/no_throw.h"

namespace reshard {
namespace {

// Intermediates start on a cache line.
constexpr size_t kAlignment = 64;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

absl::Status CheckView(absl::string_view name, const ConstTensorView& view, const Buffer& buffer, DType dtype) {
  const auto shape = [](const Dims& dims) { return absl::StrCat("[", absl::StrJoin(dims, ", "), "]"); };
  const bool empty = view.data == nullptr || NumElements(view.shape) == 0;
  if (!buffer.held || buffer.bytes == 0) {
    if (empty) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("the ", name, " has shape ", shape(view.shape),
                                                   ", but this rank holds ",
                                                   buffer.held ? "no elements" : "nothing: it is outside the mesh"));
  }
  if (view.dtype != dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", name, " is ", View(Name(view.dtype)), ", the plan is for ", View(Name(dtype))));
  }
  if (view.shape != buffer.shape) {
    return absl::InvalidArgumentError(absl::StrCat("the ", name, " has shape ", shape(view.shape),
                                                   ", this rank's fragment has ", shape(buffer.shape)));
  }
  if (view.strides.size() != view.shape.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", name, " has ", view.strides.size(), " strides for ", view.shape.size(), " dimensions"));
  }
  if (view.data == nullptr) return absl::InvalidArgumentError(absl::StrCat("the ", name, " is null"));
  return absl::OkStatus();
}

}  // namespace

void Executor::FreeDeleter::operator()(char* memory) const { std::free(memory); }

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
  for (size_t i = 0; i < executor.scratch_.size(); ++i) {
    const auto bytes = static_cast<size_t>(program->scratch_bytes[i]);
    if (bytes == 0) continue;
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    executor.scratch_[i].reset(static_cast<char*>(std::aligned_alloc(kAlignment, rounded)));
    if (executor.scratch_[i] == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for an intermediate of ", bytes, " bytes"));
    }
  }
  executor.program_ = std::move(program);
  return executor;
}

absl::Status Executor::Check(const ConstTensorView& source, const TensorView& target) const {
  const Buffer& source_buffer = program_->buffers[0];
  const Buffer& target_buffer = program_->buffers[1];
  absl::Status status = CheckView("source", source, source_buffer, program_->dtype);
  if (!status.ok()) return status;
  status = CheckView("target", target, target_buffer, program_->dtype);
  if (!status.ok()) return status;
  if (target_buffer.bytes > 0 && MayOverlapItself(target)) {
    return absl::InvalidArgumentError("the target's strides let elements overlap");
  }
  if (source_buffer.bytes > 0 && target_buffer.bytes > 0 && SpansIntersect(source, target)) {
    return absl::InvalidArgumentError("source and target share memory");
  }
  return absl::OkStatus();
}

absl::StatusOr<ExecuteResult> Executor::Execute(const ConstTensorView& source, const TensorView& target) {
  const auto start = std::chrono::steady_clock::now();
  if (!lost_.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("this executor was lost earlier: ", lost_.message()));
  }
  const absl::Status checked = NoThrow("checking the tensors", [&] { return Check(source, target); });
  if (agreement_ == Agreement::kEveryCall) {
    const absl::Status agreed = communicator_->Agree(checked, program_->fingerprint);
    if (!agreed.ok()) return agreed;
  } else if (!checked.ok()) {
    return checked;
  }
  absl::StatusOr<MovedBytes> moved = NoThrow("executing a plan", [&] { return RunSteps(source, target); });
  if (!moved.ok()) {
    lost_ = moved.status();
    return lost_;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return ExecuteResult{*moved, seconds.count()};
}

TensorView Executor::ScratchView(int buffer) const {
  const Buffer& spec = program_->buffers[static_cast<size_t>(buffer)];
  return DenseView(static_cast<void*>(scratch_[static_cast<size_t>(spec.scratch)].get()), program_->dtype, spec.shape);
}

absl::StatusOr<MovedBytes> Executor::RunSteps(const ConstTensorView& source, const TensorView& target) {
  MovedBytes moved;
  if (program_->steps.empty()) {
    const StridedCopy& copy = program_->local_copy;
    if (copy.bytes() == 0) return moved;
    const CopyMode mode = CopyModeFor(copy.bytes(), 1);
    if (IsDense(source) && IsDense(target)) {
      copy.Run(source.data, target.data, mode);
    } else {
      StridedCopy(WholeRegion(source.shape), SizeOf(program_->dtype), source.strides, target.strides)
          .Run(source.data, target.data, mode);
    }
    moved.copied_local = moved.written = copy.bytes();
    return moved;
  }
  // Fragments without elements may come as anything; the steps see the shapes of the program.
  ConstTensorView input = source;
  if (program_->buffers[0].bytes == 0) {
    input = DenseView(static_cast<const void*>(nullptr), program_->dtype, program_->buffers[0].shape);
  }
  for (const StepProgram& step : program_->steps) {
    const int out = step.tensors[0].output;
    TensorView output = target;
    if (out != 1) {
      output = ScratchView(out);
    } else if (program_->buffers[1].bytes == 0) {
      output = DenseView(static_cast<void*>(nullptr), program_->dtype, program_->buffers[1].shape);
    }
    const absl::StatusOr<MovedBytes> step_moved =
        communicator_->ExecuteStep(step, absl::MakeConstSpan(&input, 1), absl::MakeConstSpan(&output, 1));
    if (!step_moved.ok()) return step_moved.status();
    moved += *step_moved;
    input = output;
  }
  return moved;
}

}  // namespace reshard
