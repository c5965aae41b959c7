// Exchanges data between one rank and the others on its host, through the memory that they share (segment.h).
//
// A ring of slots leads to each peer: the sender packs directly into a slot and the receiver unpacks directly from it,
// while both go on with other slots and peers. Data that several peers receive alike is packed once.
// An idle rank yields its core for some microseconds, then sleeps.
//
// Example. Rank 0 sends 700 KiB to rank 1 and the same bytes to rank 2, through rings of two slots of 256 KiB. It packs
// bytes [0, 256 KiB) into slot 0 of ring 0->1; slot 0 of ring 0->2 only refers to it. Both receivers unpack from that
// one slot while rank 0 packs [256, 512 KiB) into slot 1. For [512, 700 KiB) it needs slot 0 again: it waits until ring
// 0->1 and ring 0->2, which refers to the slot, have both been emptied once. Rank 1 knows from its own plan that 700
// KiB come from rank 0, so slots carry no description except the tag of the step, which must match its own.
//
// A rank notices within some tens of milliseconds that a peer has exited, because the connection closes, and at the
// deadline that a live peer makes no progress. The owner of the transport finds out which rank is the culprit.
#ifndef RESHARD_RUNTIME_SHARED_SHARED_MEMORY_TRANSPORT_H_
#define RESHARD_RUNTIME_SHARED_SHARED_MEMORY_TRANSPORT_H_

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/packed/intra_host_exchange.h"
#include "runtime/shared/bootstrap.h"
#include "runtime/shared/flows.h"
#include "runtime/shared/pack_mode.h"
#include "runtime/shared/segment.h"
#include "runtime/shared/slot_cuts.h"
#include "runtime/shared/waiter.h"

namespace reshard::shared {

class SharedMemoryTransport final : public packed::IntraHostExchange {
 public:
  // `own` has a ring to each of `others`, which are ascending by rank, and the segment of each of them has a ring to
  // this rank. `everybody`: see IntraHostExchange. A wait fails after `timeout` in which nothing came.
  SharedMemoryTransport(Segment own, std::vector<LocalPeer> others, bool everybody, absl::Duration timeout,
                        WaitContext context);

  int64_t rank() const { return own_.rank(); }
  // What a Waiter is made with; this transport must outlive the Waiter.
  Awaited awaited() { return {own_.head().doorbell, others_, timeout_, context_, aborted_}; }

  // Sets the tag of later moves: a number that is the same on all ranks and differs between operations and between
  // plans. Ranks that move with different tags get FailedPrecondition.
  void SetTag(uint64_t tag);

  bool Reaches(int64_t rank) const override { return IndexOf(rank) >= 0; }
  bool everybody() const override { return everybody_; }
  absl::Status Move(absl::Span<const packed::MessagePart> sends, absl::Span<const packed::MessagePart> receives,
                    CopyMode mode, absl::FunctionRef<void(int)> meanwhile, MoveStats* stats,
                    packed::Stopwatch* stopwatch) override;

  absl::Status Combine(absl::Span<const packed::MessagePart> sends, absl::Span<const int64_t> senders,
                       absl::Span<const int64_t> lengths, CombineBytes combine, MoveStats* stats,
                       packed::Stopwatch* stopwatch) override;
  absl::Status CombineForAll(absl::Span<const packed::MessagePart> sends, absl::Span<const int64_t> senders,
                             absl::Span<const packed::MessagePart> results, CombineInto combine,
                             absl::Span<const packed::MessagePart> takes, CopyMode mode, MoveStats* stats,
                             packed::Stopwatch* stopwatch) override;

  void Prepack(uint64_t tag, absl::Span<const packed::MessagePart> sends, bool for_all) override;
  // Takes back what Prepack packed, if anything.
  void Rollback();

  // All-gather: `records` holds `bytes` bytes for each rank of the world; this rank's own are sent to all others, whose
  // bytes are filled in. All ranks of the world must be peers.
  absl::Status AllGather(char* records, int64_t bytes);

  // Makes the wait in progress, and all later ones, end at once. Thread-safe.
  void Abort();
  // Aborts, and makes this rank appear gone to the others. Thread-safe.
  void Leave();

 private:
  // A slot of this rank that is being filled.
  struct Slot {
    char* data = nullptr;
    int64_t bytes = 0;  // in use
    int64_t ring = 0;
    uint64_t number = 0;
  };
  // What a rank remembers about a slot that it has filled.
  struct Filled {
    // Slots of other rings that refer to it, as ring and number: it is free when all of these are emptied.
    std::vector<std::pair<int64_t, uint64_t>> lent;
    CopyMode mode = CopyMode::kCached;
    int64_t bytes = 0;        // 0: too few to learn from
    int64_t nanoseconds = 0;  // time that packing took
    int64_t receivers = 0;
  };

  // The part of the next move that has been packed already.
  struct Prepacked {
    uint64_t tag = 0;
    std::vector<std::pair<SlotCuts, int64_t>> left;    // per flow: what is left, and the slots filled
    std::vector<std::pair<int64_t, uint64_t>> filled;  // per ring to a receiver: the slots filled before
    double seconds = 0;                                // that packing took
  };

  // The index of a peer; -1: this rank shares no memory with it.
  int64_t IndexOf(int64_t rank) const;
  // One flow per set of peers that get the same parts.
  std::vector<Outgoing> OutgoingOf(absl::Span<const packed::MessagePart> pieces) const;
  // Adds one flow per peer.
  void AddIncoming(absl::Span<const packed::MessagePart> pieces, std::vector<Incoming>& in, MoveStats* stats) const;
  Incoming IncomingFrom(int64_t rank, absl::Span<const packed::MessagePart> pieces, std::vector<int64_t> lengths) const;
  Filled& FilledAt(int64_t ring, uint64_t number) {
    return filled_[static_cast<size_t>(ring * own_.slots()) + number % static_cast<uint64_t>(own_.slots())];
  }
  // Whether the flow's next slot cannot be filled yet because of the receiver of ring `by` (nullopt: of any receiver).
  bool Held(const Outgoing& flow, std::optional<int64_t> by);
  bool Free(const Outgoing& flow) { return !Held(flow, std::nullopt); }
  // The next slot of a flow, which is free: Begin takes it, Publish shows it to its receivers. Fill does both, and
  // packs in between.
  Slot Begin(Outgoing& flow);
  void Publish(Outgoing& flow, const Slot& slot);
  void Fill(Outgoing& flow);
  // Wakes the receivers.
  void WakeReceivers(const Outgoing& flow) const;
  // Takes over what Prepack packed of these flows, and leaves in them what is still to be packed.
  absl::Status ResumePrepacked(std::vector<Outgoing>& out, MoveStats* stats);
  // Opens the flow's next slot, which is full. FailedPrecondition: it belongs to a different step.
  absl::Status Open(Incoming& flow) const;
  // Internal: these ranks have slots of a different size or number than this rank.
  absl::Status CheckSameSlots(const std::vector<Incoming>& in) const;
  // Fills outgoing slots and takes incoming ones until both are done. `take` takes what has arrived for `in` and
  // returns whether anything had; `own_results` is the flow that `take` fills by combining, null except in
  // CombineForAll.
  absl::Status Drive(std::vector<Outgoing>& out, const Outgoing* own_results, std::vector<Incoming>& in,
                     absl::FunctionRef<absl::StatusOr<bool>()> take, absl::FunctionRef<void(int)> meanwhile,
                     MoveStats* stats, packed::Stopwatch* stopwatch);
  // AllGather for records that fit a mailbox; they lie `pitch` bytes apart.
  absl::Status AllGatherMailboxes(char* records, int64_t pitch, int64_t bytes);

  Segment own_;
  const std::vector<LocalPeer> others_;
  const bool everybody_;
  const absl::Duration timeout_;
  const WaitContext context_;
  std::vector<Filled> filled_;            // by ring and slot
  std::vector<PackMode> pack_modes_;      // by ring
  const int64_t creator_pid_ = getpid();  // a forked child must not shut down the connections
  uint64_t tag_ = 0;
  std::optional<Prepacked> prepacked_;
  uint64_t posted_ = 0;  // mailboxes written so far
  std::atomic<bool> aborted_ = false;
};

}  // namespace reshard::shared

#endif  // RESHARD_RUNTIME_SHARED_SHARED_MEMORY_TRANSPORT_H_
