// Runs one compiled program any number of times, and checks the arguments of each call. Intermediates and staging come
// from a pool, so that an idle executor holds no data.
#ifndef RESHARD_RUNTIME_EXECUTOR_H_
#define RESHARD_RUNTIME_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/program.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard {

// Whether the ranks compare what they are about to do before any data moves.
enum class Agreement { kEveryCall, kOff };

// kOff if the environment variable RESHARD_AGREEMENT is "off", else kEveryCall.
Agreement DefaultAgreement();

// What one call did.
struct ExecuteResult {
  MoveStats moved;       // over all steps; moved.received is what the plan counts for this rank
  double seconds = 0.0;  // wall-clock time of this call on this rank, waiting included
};

// A program and the communicator that it runs on. Move-only; one thread at a time.
class Executor {
 public:
  // `communicator` must outlive the executor.
  // InvalidArgument: a null argument, or the program is for another rank.
  static absl::StatusOr<Executor> Create(std::shared_ptr<const Program> program, Communicator* communicator,
                                         Agreement agreement = Agreement::kEveryCall);

  // What it runs; its buffers say which shapes and dtypes the views must have.
  const Program& program() const { return *program_; }

  // Redistributes this rank's fragment `source` into `target`. Collective: every rank of the communicator calls it.
  // Post-condition: `target` holds this rank's fragment of the plan's target layout; `source` is unchanged. Both may be
  // strided. A rank outside the source (target) mesh passes a default-constructed view, or any view without elements.
  // InvalidArgument: a view that is null, has a dtype or shape other than the program's, or is not in the memory that
  // the communicator moves; a target that overlaps itself or the source. With Agreement::kEveryCall every rank returns
  // that error and all stay usable; with kOff the others find out by waiting. ResourceExhausted: no memory for the
  // intermediates. Otherwise the errors of the communicator. After an error during the steps the executor is unusable:
  // later calls return FailedPrecondition immediately.
  absl::StatusOr<ExecuteResult> Execute(const ConstTensorView& source, const TensorView& target);
  // The same for a program of many tensors, with one source and one target per tensor. No target may overlap any other
  // view.
  absl::StatusOr<ExecuteResult> ExecuteBatch(absl::Span<const ConstTensorView> sources,
                                             absl::Span<const TensorView> targets);

  // The two halves of ExecuteBatch, for callers that agree on several executors at once.
  // Check is local: it returns what ExecuteBatch would return for these views. `targets_are_fresh` says that the
  // targets are new memory, so that Check need not look for overlaps. Errors number the tensors starting at `first`.
  absl::Status Check(absl::Span<const ConstTensorView> sources, absl::Span<const TensorView> targets,
                     bool targets_are_fresh = false, int64_t first = 0) const;
  // Agrees on `problem` before ExecuteChecked is called with these sources, which Check has accepted. Collective: a
  // rank whose views Check rejected calls Communicator::Agree with the error instead. Returns what Agree returns.
  absl::Status AgreeBefore(absl::Span<const ConstTensorView> sources, const Signature& problem);
  // Runs the steps for views that Check has accepted, without agreement. Collective.
  absl::StatusOr<ExecuteResult> ExecuteChecked(absl::Span<const ConstTensorView> sources,
                                               absl::Span<const TensorView> targets);

 private:
  Executor() = default;
  absl::StatusOr<MoveStats> RunSteps(absl::Span<const ConstTensorView> sources, absl::Span<const TensorView> targets);
  std::optional<ConstTensorView> SourceFor(const StepTensor& tensor, absl::Span<const ConstTensorView> sources) const;

  std::shared_ptr<const Program> program_;
  Communicator* communicator_ = nullptr;
  Agreement agreement_ = Agreement::kEveryCall;
  // There is one step, it moves every source to its target, and all have elements: the caller's views can be passed on.
  bool one_step_ = false;
  absl::Status failure_;                          // the error that made it unusable
  std::vector<std::unique_ptr<StepMemo>> memos_;  // one per step
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_EXECUTOR_H_
