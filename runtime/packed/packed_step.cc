#include "runtime/packed/packed_step.h"

#include "absl/strings/str_cat.h"
#include "runtime/packed/packed_moves.h"

namespace reshard::packed {

absl::StatusOr<MoveStats> ExecutePackedStep(const StepProgram& step, int64_t rank,
                                            absl::Span<const ConstTensorView> inputs,
                                            absl::Span<const TensorView> outputs, MessageTransport& transport) {
  if (inputs.size() != step.tensors.size() || outputs.size() != step.tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the step has ", step.tensors.size(), " tensors, got ",
                                                   inputs.size(), " inputs and ", outputs.size(), " outputs"));
  }
  PackedStep packed{step, rank, inputs, outputs, transport, {}, {}};
  absl::Status status;
  switch (step.op) {
    case Op::kReduceScatter:
      status = ReduceScatterStep(packed);
      break;
    case Op::kAllReduce:
      status = AllReduceStep(packed);
      break;
    default:
      status = MoveStep(packed);
      break;
  }
  if (!status.ok()) return status;
  return packed.stats;
}

}  // namespace reshard::packed
