// What one rank sends to, and receives from, its peers in one operation, slot by slot.
#ifndef RESHARD_RUNTIME_SHARED_FLOWS_H_
#define RESHARD_RUNTIME_SHARED_FLOWS_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "runtime/packed/fetch_ahead.h"
#include "runtime/packed/wire_messages.h"
#include "runtime/shared/segment.h"
#include "runtime/shared/slot_cuts.h"

namespace reshard::shared {

// Pieces that one or more peers receive alike.
struct Outgoing {
  struct Receiver {
    size_t peer = 0;   // its index among the peers
    int64_t ring = 0;  // of this rank's segment
  };
  std::vector<Receiver> to;
  absl::Span<const packed::MessagePart> pieces;
  SlotCuts left;
  std::vector<Cut> cuts;              // of the current slot
  int64_t slots = 0;                  // filled so far
  const Outgoing* results = nullptr;  // if these are contributions: the results for the same peer, see ResultIsNext
};

// What comes from one peer.
struct Incoming {
  size_t peer = 0;  // its index among the peers
  const Segment* segment = nullptr;
  int64_t ring = 0;
  absl::Span<const packed::MessagePart> pieces;  // empty if they are combined
  SlotCuts left;
  int64_t slots = 0;  // emptied so far
  // The current slot: its header, its memory, and the cuts in it.
  SlotHeader* header = nullptr;
  const char* slot = nullptr;
  std::vector<Cut> cuts;

  const Ring& state() const { return segment->ring(ring); }
  bool ready() const { return state().filled.load() != state().emptied.load(std::memory_order_relaxed); }
  // Lets the sender fill the current slot again; `nanoseconds` is the time that this rank took for it.
  void Release(int64_t nanoseconds) {
    header->nanoseconds = nanoseconds;
    ++slots;
    Ring& ring_state = segment->ring(ring);
    ring_state.emptied.store(ring_state.emptied.load(std::memory_order_relaxed) + 1);
    segment->head().doorbell.WakeIfAsleep();
  }
};

// Where contributions to a peer and results for it share a ring, this many contributions come first, then results and
// contributions take turns: with four slots of each, C0 C1 R0 C2 R1 C3 R2 R3. A result waits for as many contributions
// from every rank, so a ring must hold twice as many slots: otherwise ranks whose rings are full of contributions would
// wait for each other.
inline constexpr int64_t kContributionsAhead = 2;

// Whether the next slot of the ring holds a result: the same at both ends. Flow is Outgoing or Incoming.
template <typename Flow>
bool ResultIsNext(const Flow* contributions, const Flow& results) {
  if (results.left.done()) return false;
  return contributions == nullptr || contributions->left.done() ||
         contributions->slots - results.slots >= kContributionsAhead;
}

inline int64_t Nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The lengths of the pieces in bytes.
inline std::vector<int64_t> LengthsOf(absl::Span<const packed::MessagePart> pieces) {
  std::vector<int64_t> lengths;
  for (const packed::MessagePart& piece : pieces) lengths.push_back(piece.bytes);
  return lengths;
}

// The start of the message whose byte `begin` is at `at`. It need not be inside the slot.
inline char* StartOf(const char* at, int64_t begin) {
  return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(at) - static_cast<uintptr_t>(begin));
}

// Calls run(piece, cut) for each cut of the pieces. `written` says whether run writes or reads their fragments.
template <typename Run>
void RunCuts(absl::Span<const packed::MessagePart> pieces, const std::vector<Cut>& cuts, bool written, const Run& run) {
  const auto piece = [&](size_t c) -> const packed::MessagePart& { return pieces[cuts[c].piece]; };
  packed::CopyFetchingAhead(
      cuts.size(), [&](size_t c) { packed::FetchSmall(*piece(c).copy, piece(c).fragment, written); },
      [&](size_t c) { run(piece(c), cuts[c]); });
}

// Copies the flow's current slot into the fragments of its pieces.
inline void Unpack(const Incoming& flow, CopyMode mode) {
  RunCuts(flow.pieces, flow.cuts, /*written=*/true, [&](const packed::MessagePart& piece, const Cut& cut) {
    piece.copy->RunBytes(StartOf(flow.slot + cut.at, cut.begin), piece.fragment, cut.begin, cut.end, mode);
  });
}

}  // namespace reshard::shared

#endif  // RESHARD_RUNTIME_SHARED_FLOWS_H_
