// Executes steps over a backend that carries contiguous messages: packs, sends, receives, unpacks, reduces.
//
// At most one pass over the data on each side: a transfer whose bytes lie contiguously in the fragment is sent from
// there or received into it directly (wire_messages.h says which travel together).
//
// Small steps in which most ranks have to do with most go through one all-to-all of the backend instead, where it says
// that it prefers that.
//
// Messages are packed peer by peer, starting after this rank, and sent as soon as they are packed; what arrives is
// unpacked while later messages are still under way. Reductions are all-to-alls of contributions that every rank
// combines in the order of the ranks, so that all backends give the same bits.
#ifndef RESHARD_RUNTIME_CORE_PACKED_STEP_H_
#define RESHARD_RUNTIME_CORE_PACKED_STEP_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/program.h"
#include "reshard/runtime/tensor_view.h"
#include "runtime/core/message_transport.h"

namespace reshard {

// One step of a program compiled for CopyFor::kMessages, on rank `rank`. All views are in host memory.
// ResourceExhausted: no memory for staging. Otherwise what the transport reports.
absl::StatusOr<MoveStats> ExecutePackedStep(const StepProgram& step, int64_t rank,
                                            absl::Span<const ConstTensorView> inputs,
                                            absl::Span<const TensorView> outputs, MessageTransport& transport);

}  // namespace reshard

#endif  // RESHARD_RUNTIME_CORE_PACKED_STEP_H_
