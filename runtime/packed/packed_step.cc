#include "runtime/packed/packed_step.h"

#include "absl/strings/str_cat.h"
#include "runtime/packed/packed_moves.h"
#include "runtime/packed/step_copies.h"
#include "status/macros.h"

namespace reshard::packed {

absl::StatusOr<MoveStats> ExecutePackedStep(const StepProgram& step, int64_t rank,
                                            absl::Span<const ConstTensorView> inputs,
                                            absl::Span<const TensorView> outputs, MessageTransport& transport) {
  if (inputs.size() != step.tensors.size() || outputs.size() != step.tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the step has ", step.tensors.size(), " tensors, got ",
                                                   inputs.size(), " inputs and ", outputs.size(), " outputs"));
  }
  PackedStep packed{step, rank, inputs, outputs, transport, {}, {}};
  NearExchange* const near = transport.near();
  const bool as_they_come = step.op == Op::kReduceScatter && near != nullptr && near->everybody();
  RETURN_IF_ERROR(as_they_come                ? ReduceScatterNear(packed, *near)
                  : step.op == Op::kAllReduce ? AllReduceStep(packed)
                                              : ExchangeStep(packed));
  return packed.stats;
}

void PackAhead(const StepProgram& step, absl::Span<const ConstTensorView> inputs, uint64_t tag, NearExchange& near) {
  if (step.op == Op::kSlice || !near.everybody()) return;
  if (step.op == Op::kAllReduce) return PackContributionsAhead(step, inputs, tag, near);
  StepCopies copies;
  near.PackAhead(tag, SendsOf(step, inputs, copies), /*for_all=*/false);
}

}  // namespace reshard::packed
