#include "runtime/packed/packed_step.h"

#include "absl/strings/str_cat.h"
#include "runtime/packed/packed_moves.h"
#include "runtime/packed/step_copies.h"
#include "status/macros.h"

namespace reshard::packed {

absl::StatusOr<MoveStats> ExecutePackedStep(const StepProgram& step, int64_t rank,
                                            absl::Span<const ConstTensorView> inputs,
                                            absl::Span<const TensorView> outputs, MessageTransport& transport,
                                            IntraHostExchange* intra_host) {
  if (inputs.size() != step.tensors.size() || outputs.size() != step.tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the step has ", step.tensors.size(), " tensors, got ",
                                                   inputs.size(), " inputs and ", outputs.size(), " outputs"));
  }
  PackedStep packed{step, rank, inputs, outputs, transport, intra_host, {}, {}};
  const bool as_they_come = step.op == Op::kReduceScatter && intra_host != nullptr && intra_host->everybody();
  RETURN_IF_ERROR(as_they_come                ? ReduceScatterIntraHost(packed, *intra_host)
                  : step.op == Op::kAllReduce ? AllReduceStep(packed)
                                              : ExchangeStep(packed));
  return packed.stats;
}

void Prepack(const StepProgram& step, absl::Span<const ConstTensorView> inputs, uint64_t tag,
             IntraHostExchange& intra_host) {
  if (step.op == Op::kSlice || !intra_host.everybody()) return;
  if (step.op == Op::kAllReduce) return PrepackContributions(step, inputs, tag, intra_host);
  StepCopies copies;
  intra_host.Prepack(tag, SendsOf(step, inputs, copies), /*for_all=*/false);
}

}  // namespace reshard::packed
