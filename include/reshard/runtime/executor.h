// Runs a compiled program again and again: the program, the memory for its intermediates, and the checks of each call.
#ifndef RESHARD_RUNTIME_EXECUTOR_H_
#define RESHARD_RUNTIME_EXECUTOR_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/program.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard {

// Whether the ranks compare what they are about to do before any data moves.
enum class Agreement { kEveryCall, kOff };

struct ExecuteResult {
  MovedBytes moved;      // over all steps; moved.received is what the plan counts for this rank
  double seconds = 0.0;  // of this call on this rank, waiting included
};

class Executor {
 public:
  // Allocates the intermediates. `communicator` must outlive the executor.
  // InvalidArgument: no program, or the program is another rank's. ResourceExhausted: no memory for the intermediates.
  static absl::StatusOr<Executor> Create(std::shared_ptr<const Program> program, Communicator* communicator,
                                         Agreement agreement = Agreement::kEveryCall);

  const Program& program() const { return *program_; }

  // Redistributes this rank's fragment `source` into `target`. Collective: every rank of the communicator calls it.
  // Post-condition: target holds this rank's fragment of the plan's target layout; source is unchanged. Both may be
  // strided. A rank outside the source (target) mesh passes a default-constructed view, or any view without elements.
  // InvalidArgument: a view has another dtype or shape than the program, is null, not in host memory, or the target
  // overlaps itself or the source. With Agreement::kEveryCall that error reaches every rank and all stay usable; with
  // kOff the others find out by waiting.
  // Any error of the communicator. After one the executor is lost: later calls return FailedPrecondition at once.
  absl::StatusOr<ExecuteResult> Execute(const ConstTensorView& source, const TensorView& target);

 private:
  struct FreeDeleter {
    void operator()(char* memory) const;
  };
  using Memory = std::unique_ptr<char[], FreeDeleter>;

  Executor() = default;
  absl::Status Check(const ConstTensorView& source, const TensorView& target) const;
  absl::StatusOr<MovedBytes> RunSteps(const ConstTensorView& source, const TensorView& target);
  TensorView ScratchView(int buffer) const;

  std::shared_ptr<const Program> program_;
  Communicator* communicator_ = nullptr;
  Agreement agreement_ = Agreement::kEveryCall;
  std::array<Memory, 2> scratch_;
  absl::Status lost_;  // the error that ended it
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_EXECUTOR_H_
