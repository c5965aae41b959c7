// The halves of packed_step.cc: moving pieces of fragments in messages, and what reductions need of it.
#ifndef RESHARD_RUNTIME_CORE_PACKED_MOVES_H_
#define RESHARD_RUNTIME_CORE_PACKED_MOVES_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/program.h"
#include "reshard/runtime/strided_copy.h"
#include "reshard/runtime/tensor_view.h"
#include "runtime/core/message_transport.h"
#include "runtime/core/wire_messages.h"

namespace reshard {

// Adds the time since the last lap to one of three accounts.
class Laps {
 public:
  void operator()(double* account) {
    const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
    *account += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// What the parts of a step have in common.
struct PackedStep {
  const StepProgram& step;
  int64_t rank = 0;
  absl::Span<const ConstTensorView> inputs;
  absl::Span<const TensorView> outputs;
  MessageTransport& transport;
  MoveStats stats;
  Laps lap;
};

// The start of a view that is only read, in the type that pieces have.
inline char* Data(const ConstTensorView& view) { return static_cast<char*>(const_cast<void*>(view.data)); }

// A dense run of bytes as a copy.
inline StridedCopy Bytes(int64_t bytes) { return StridedCopy({{{0, 0, bytes}}}, 1, {1}, {1}); }

absl::Status NoStaging(int64_t bytes);

// A step that moves: everything but reductions.
absl::Status MoveStep(PackedStep& packed);

// Moves pieces, ordered by peer, that no rank keeps a part of, in the way that suits the step.
absl::Status ExchangePieces(PackedStep& packed, const std::vector<Piece>& sends, const std::vector<Piece>& receives);

// Reductions: all-to-alls of contributions, which every rank combines in the order of the ranks.
absl::Status ReduceScatterStep(PackedStep& packed);
absl::Status AllReduceStep(PackedStep& packed);

}  // namespace reshard

#endif  // RESHARD_RUNTIME_CORE_PACKED_MOVES_H_
