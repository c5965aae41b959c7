// The parts of ExecutePackedStep: moving pieces of fragments in messages, and the reductions that build on it.
#ifndef RESHARD_RUNTIME_PACKED_PACKED_MOVES_H_
#define RESHARD_RUNTIME_PACKED_PACKED_MOVES_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/program.h"
#include "reshard/runtime/strided_copy.h"
#include "reshard/runtime/tensor_view.h"
#include "runtime/packed/intra_host_exchange.h"
#include "runtime/packed/message_transport.h"
#include "runtime/packed/step_copies.h"
#include "runtime/packed/stopwatch.h"
#include "runtime/packed/wire_messages.h"

namespace reshard::packed {

// What the parts of one step share.
struct PackedStep {
  const StepProgram& step;
  int64_t rank = 0;
  absl::Span<const ConstTensorView> inputs;
  absl::Span<const TensorView> outputs;
  MessageTransport& transport;
  IntraHostExchange* intra_host = nullptr;  // null: no rank shares memory with this one
  MoveStats stats;
  Stopwatch stopwatch;
};

// The address of a view that is only read, in the type that pieces have.
inline char* Data(const ConstTensorView& view) { return static_cast<char*>(const_cast<void*>(view.data)); }

// A dense run of bytes as a copy.
inline StridedCopy Bytes(int64_t bytes) { return StridedCopy({{{0, 0, bytes}}}, 1, {1}, {1}); }

// How a step is written in which each of `ranks` ranks writes `bytes` bytes.
inline CopyMode ModeAmong(int64_t ranks, int64_t bytes) { return CopyModeFor(bytes * ranks, ranks); }

// How a reduction is written in which each of `ranks` ranks combines `bytes` bytes of every rank. Each of the `ranks`
// bytes that it reads per byte takes as much cache as the byte itself; a copy reads one.
inline CopyMode CombineModeAmong(int64_t ranks, int64_t bytes) { return ModeAmong(ranks, bytes * (ranks + 1) / 2); }

absl::Status NoStaging(int64_t bytes);

// What this rank sends in a step of one exchange, by peer. `copies` owns what is made for the strides of the inputs.
std::vector<MessagePart> SendsOf(const StepProgram& step, absl::Span<const ConstTensorView> inputs, StepCopies& copies);

// Executes a step of one exchange, which is any but an AllReduce. Contributions are combined when all have come, in the
// order of the ranks.
absl::Status ExchangeStep(PackedStep& packed);

// Moves pieces between ranks: through memory where they share it, else as single messages or in one all-to-all,
// whichever suits the step. The pieces are ordered by peer, and none of them stays on its rank.
absl::Status ExchangePieces(PackedStep& packed, const std::vector<MessagePart>& sends,
                            const std::vector<MessagePart>& receives);

// ReduceScatter between ranks that all share memory: contributions are combined as they come, in the order of the
// ranks.
absl::Status ReduceScatterIntraHost(PackedStep& packed, IntraHostExchange& intra_host);

// Prepacks what this rank contributes to the AllReduce that is executed next, if the inputs are dense.
void PrepackContributions(const StepProgram& step, absl::Span<const ConstTensorView> inputs, uint64_t tag,
                          IntraHostExchange& intra_host);

// Executes an AllReduce: one exchange of contributions, which every rank combines in the order of the ranks, and one of
// the results; among ranks that all share memory the two are one.
absl::Status AllReduceStep(PackedStep& packed);

}  // namespace reshard::packed

#endif  // RESHARD_RUNTIME_PACKED_PACKED_MOVES_H_
