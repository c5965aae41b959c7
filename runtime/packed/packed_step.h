// Executes steps over a backend that carries contiguous messages: packs, sends, receives, unpacks, reduces.
//
// There is at most one pass over the data on each side: a transfer whose bytes are contiguous in the fragment is sent
// from there, or received into it, directly (wire_messages.h says which transfers travel together).
//
// Small steps in which most ranks exchange data with most others go through one all-to-all of the backend instead, if
// the backend prefers that.
//
// Messages are packed peer by peer, starting after this rank, and sent as soon as they are packed; what arrives is
// unpacked while later messages are still in flight. Reductions are all-to-alls of contributions that every rank
// combines in rank order, so that all backends give the same bits.
#ifndef RESHARD_RUNTIME_PACKED_PACKED_STEP_H_
#define RESHARD_RUNTIME_PACKED_PACKED_STEP_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/program.h"
#include "reshard/runtime/tensor_view.h"
#include "runtime/packed/intra_host_exchange.h"
#include "runtime/packed/message_transport.h"

namespace reshard::packed {

// Executes one step of a program compiled for CopyFor::kMessages, on rank `rank`. All views must be in host memory.
// `intra_host` reaches ranks that share memory with this one, to which no messages are sent; null: there are none.
// ResourceExhausted: no memory for staging. Otherwise the errors of the transport.
absl::StatusOr<MoveStats> ExecutePackedStep(const StepProgram& step, int64_t rank,
                                            absl::Span<const ConstTensorView> inputs,
                                            absl::Span<const TensorView> outputs, MessageTransport& transport,
                                            IntraHostExchange* intra_host = nullptr);

// Prepacks for the step that is executed next, if all ranks share memory.
void Prepack(const StepProgram& step, absl::Span<const ConstTensorView> inputs, uint64_t tag,
             IntraHostExchange& intra_host);

}  // namespace reshard::packed

#endif  // RESHARD_RUNTIME_PACKED_PACKED_STEP_H_
