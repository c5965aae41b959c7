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

// The same pieces for one peer or more.
struct Outgoing {
  struct Receiver {
    size_t peer = 0;   // its index among the peers
    int64_t ring = 0;  // of this rank's segment
  };
  std::vector<Receiver> to;
  absl::Span<const packed::MessagePart> pieces;
  SlotCuts left;
  std::vector<Cut> cuts;              // of the slot in work
  int64_t slots = 0;                  // filled so far
  const Outgoing* results = nullptr;  // for the same peer, where these are contributions: see ResultIsNext
};

// What comes from one peer.
struct Incoming {
  size_t peer = 0;  // its index among the peers
  const Segment* segment = nullptr;
  int64_t ring = 0;
  absl::Span<const packed::MessagePart> pieces;  // none where they are combined
  SlotCuts left;
  int64_t slots = 0;  // emptied so far
  // Of the slot in work: its header, its memory, and what is where in it.
  SlotHeader* header = nullptr;
  const char* slot = nullptr;
  std::vector<Cut> cuts;

  const Ring& state() const { return segment->ring(ring); }
  bool full() const { return state().filled.load() != state().emptied.load(std::memory_order_relaxed); }
  // The slot in work may be filled again; `nanoseconds` is what it took.
  void Release(int64_t nanoseconds) {
    header->nanoseconds = nanoseconds;
    ++slots;
    Ring& ring_state = segment->ring(ring);
    ring_state.emptied.store(ring_state.emptied.load(std::memory_order_relaxed) + 1);
    segment->head().doorbell.RingIfAsleep();
  }
};

// Where contributions to a peer and results for it share a ring, this many contributions come first, then they take
// turns. A result waits for as many contributions of everybody, so that a ring must hold twice as many slots: else
// ranks whose rings are full of contributions would wait for each other.
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

// In bytes.
inline std::vector<int64_t> LengthsOf(absl::Span<const packed::MessagePart> pieces) {
  std::vector<int64_t> lengths;
  for (const packed::MessagePart& piece : pieces) lengths.push_back(piece.bytes);
  return lengths;
}

// The start of the message of which byte `begin` is at `at`. It need not be inside the slot.
inline char* StartOf(const char* at, int64_t begin) {
  return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(at) - static_cast<uintptr_t>(begin));
}

// Calls run(piece, cut) for each cut of the pieces, whose fragments are read or written.
template <typename Run>
void RunCuts(absl::Span<const packed::MessagePart> pieces, const std::vector<Cut>& cuts, bool written, const Run& run) {
  const auto piece = [&](size_t c) -> const packed::MessagePart& { return pieces[cuts[c].piece]; };
  packed::CopyFetchingAhead(
      cuts.size(), [&](size_t c) { packed::FetchSmall(*piece(c).copy, piece(c).fragment, written); },
      [&](size_t c) { run(piece(c), cuts[c]); });
}

}  // namespace reshard::shared

#endif  // RESHARD_RUNTIME_SHARED_FLOWS_H_
