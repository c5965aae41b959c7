// Runs a compiled program again and again: the program, and the checks of each call. Intermediates and staging come
// from a pool, so that an executor that rests holds no data.
#ifndef RESHARD_RUNTIME_EXECUTOR_H_
#define RESHARD_RUNTIME_EXECUTOR_H_

#include <cstdint>
#include <memory>
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

// kOff where RESHARD_AGREEMENT is "off", else kEveryCall.
Agreement DefaultAgreement();

struct ExecuteResult {
  MoveStats moved;       // over all steps; moved.received is what the plan counts for this rank
  double seconds = 0.0;  // of this call on this rank, waiting included
};

class Executor {
 public:
  // `communicator` must outlive the executor.
  // InvalidArgument: no program, or the program is another rank's.
  static absl::StatusOr<Executor> Create(std::shared_ptr<const Program> program, Communicator* communicator,
                                         Agreement agreement = Agreement::kEveryCall);

  const Program& program() const { return *program_; }

  // Redistributes this rank's fragment `source` into `target`. Collective: every rank of the communicator calls it.
  // Post-condition: target holds this rank's fragment of the plan's target layout; source is unchanged. Both may be
  // strided. A rank outside the source (target) mesh passes a default-constructed view, or any view without elements.
  // InvalidArgument: a view has another dtype or shape than the program, is null, not in the memory that the
  // communicator moves, or the target overlaps itself or the source. With Agreement::kEveryCall that error reaches
  // every rank and all stay usable; with kOff the others find out by waiting. ResourceExhausted: no memory for the
  // intermediates. Any error of the communicator. After an error during the steps the executor is lost: later calls
  // return FailedPrecondition at once.
  absl::StatusOr<ExecuteResult> Execute(const ConstTensorView& source, const TensorView& target);
  // The same for a program of many tensors, one source and one target each. No target may overlap any other view.
  absl::StatusOr<ExecuteResult> ExecuteBatch(absl::Span<const ConstTensorView> sources,
                                             absl::Span<const TensorView> targets);

  // The two halves of Execute, for callers that agree on several executors at once. Check is local: what Execute says
  // of the views; whether targets overlap anything is not asked where they are known to be fresh memory. ExecuteChecked
  // runs the steps for views that Check has passed, without any agreement.
  absl::Status Check(absl::Span<const ConstTensorView> sources, absl::Span<const TensorView> targets,
                     bool targets_are_fresh = false) const;
  absl::StatusOr<ExecuteResult> ExecuteChecked(absl::Span<const ConstTensorView> sources,
                                               absl::Span<const TensorView> targets);

 private:
  Executor() = default;
  absl::StatusOr<MoveStats> RunSteps(absl::Span<const ConstTensorView> sources, absl::Span<const TensorView> targets);

  std::shared_ptr<const Program> program_;
  Communicator* communicator_ = nullptr;
  Agreement agreement_ = Agreement::kEveryCall;
  // The only step moves every source to its target, and all have elements: the caller's views are the step's.
  bool one_step_ = false;
  absl::Status lost_;                             // the error that ended it
  std::vector<std::unique_ptr<StepMemo>> memos_;  // one a step
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_EXECUTOR_H_
