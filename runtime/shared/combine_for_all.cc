#include <algorithm>
#include <cstddef>
#include <vector>

#include "runtime/shared/flows.h"
#include "runtime/shared/shared_memory_transport.h"
#include "status/macros.h"

namespace reshard::shared {
namespace {

// Bytes that are combined into a slot before they are copied out of it, while they are still in the nearest caches.
constexpr int64_t kBlock = int64_t{32} << 10;

// What travels between this rank and one other.
struct Exchange {
  const Outgoing* contributed = nullptr;  // what this rank contributes to the peer's results, if anything
  Incoming* contributions = nullptr;      // what the peer contributes to this rank's results, if anything
  Incoming* results = nullptr;            // the peer's results, if any
};

}  // namespace

// All-reduce as a pipelined reduce-scatter and all-gather: this rank reduces its shard directly in a slot that all
// receivers read.
absl::Status SharedMemoryTransport::CombineForAll(absl::Span<const packed::MessagePart> sends,
                                                  absl::Span<const int64_t> senders,
                                                  absl::Span<const packed::MessagePart> results, CombineInto combine,
                                                  absl::Span<const packed::MessagePart> takes, CopyMode mode,
                                                  MoveStats* stats, packed::Stopwatch* stopwatch) {
  std::vector<Outgoing> out = OutgoingOf(sends);
  Outgoing own_results{{}, results, SlotCuts(LengthsOf(results)), {}, 0, nullptr};
  std::vector<Incoming> in;
  for (const int64_t sender : senders) {
    own_results.to.push_back({static_cast<size_t>(IndexOf(sender)), own_.IndexOfRingTo(sender)});
    if (!results.empty()) in.push_back(IncomingFrom(sender, {}, LengthsOf(results)));
  }
  const size_t contributing = in.size();
  AddIncoming(takes, in, stats);
  RETURN_IF_ERROR(CheckSameSlots(in));
  if (own_.slots() < 2 * kContributionsAhead) return absl::InternalError("rings of too few slots");

  std::vector<Exchange> exchanges(others_.size());
  for (Outgoing& flow : out) {
    flow.results = &own_results;
    for (const Outgoing::Receiver& receiver : flow.to) exchanges[receiver.peer].contributed = &flow;
  }
  for (size_t i = 0; i < in.size(); ++i) {
    Exchange& with = exchanges[in[i].peer];
    (i < contributing ? with.contributions : with.results) = &in[i];
  }
  std::vector<const char*> from(contributing);

  const auto take_results = [&]() -> absl::StatusOr<bool> {
    bool took = false;
    for (const Exchange& with : exchanges) {
      Incoming* const flow = with.results;
      if (flow == nullptr || !ResultIsNext<Incoming>(with.contributions, *flow) || !flow->ready()) continue;
      RETURN_IF_ERROR(Open(*flow));
      Unpack(*flow, mode);
      flow->Release(0);
      took = true;
    }
    return took;
  };
  const auto combinable = [&] {
    if (own_results.left.done()) return false;
    for (const Outgoing::Receiver& receiver : own_results.to) {
      const Exchange& with = exchanges[receiver.peer];
      if (!ResultIsNext(with.contributed, own_results) || !with.contributions->ready()) return false;
      if (with.results != nullptr && ResultIsNext(with.contributions, *with.results)) return false;
    }
    return Free(own_results);
  };
  const auto combine_slot = [&]() -> absl::Status {
    for (size_t i = 0; i < contributing; ++i) RETURN_IF_ERROR(Open(in[i]));
    const int64_t begin = Nanoseconds();
    const Slot slot = Begin(own_results);
    for (const Cut& cut : own_results.cuts) {
      const packed::MessagePart& piece = results[cut.piece];
      for (int64_t at = cut.begin; at < cut.end; at += kBlock) {
        const int64_t end = std::min(at + kBlock, cut.end);
        char* const to = slot.data + cut.at + (at - cut.begin);
        for (size_t i = 0; i < contributing; ++i) from[i] = in[i].slot + cut.at + (at - cut.begin);
        combine(cut.piece, at, end, from, to);
        piece.copy->RunBytes(StartOf(to, at), piece.fragment, at, end, mode);
      }
      stats->received += (cut.end - cut.begin) * static_cast<int64_t>(contributing);
    }
    Publish(own_results, slot);
    WakeReceivers(own_results);
    const int64_t each = (Nanoseconds() - begin) / static_cast<int64_t>(contributing);
    for (size_t i = 0; i < contributing; ++i) in[i].Release(each);
    return absl::OkStatus();
  };
  const auto take = [&]() -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(const bool took, take_results());
    if (!combinable()) return took;
    RETURN_IF_ERROR(combine_slot());
    return true;
  };
  return Drive(
      out, &own_results, in, take, [](int) {}, stats, stopwatch);
}

}  // namespace reshard::shared
