// Builds one step of several tensors from the steps of each.
#ifndef RESHARD_RUNTIME_PROGRAM_APPEND_STEP_H_
#define RESHARD_RUNTIME_PROGRAM_APPEND_STEP_H_

#include "absl/functional/function_ref.h"
#include "reshard/runtime/program.h"

namespace reshard::program {

// Whether the two can be one step: moves share an exchange, reductions go together if op and groups are the same.
bool GoTogether(const StepProgram& a, const StepProgram& b);

// Adds `step`, with its buffers renamed, to a step that it goes together with or that has no tensors yet. Call
// FinishStep once all are added.
void AppendStep(const StepProgram& step, absl::FunctionRef<int(int buffer)> rename, StepProgram* into);
// Puts the transfers in the order that a step requires.
void FinishStep(StepProgram* step);

}  // namespace reshard::program

#endif  // RESHARD_RUNTIME_PROGRAM_APPEND_STEP_H_
