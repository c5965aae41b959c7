#include "runtime/shared/shared_memory_transport.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/shared/flows.h"
#include "runtime/shared/waiter.h"
#include "status/macros.h"

namespace reshard::shared {
namespace {

// Smaller slots are packed through the caches and not measured.
constexpr int64_t kWorthMeasuring = int64_t{16} << 10;

// Whether two pieces are the same bytes of the same fragment.
bool Alike(const packed::MessagePart& a, const packed::MessagePart& b) {
  return a.bytes == b.bytes && a.copy->contiguous() && b.copy->contiguous() &&
         a.fragment + a.copy->from_offset() == b.fragment + b.copy->from_offset();
}

bool AllAlike(absl::Span<const packed::MessagePart> a, absl::Span<const packed::MessagePart> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), Alike);
}

}  // namespace

SharedMemoryTransport::SharedMemoryTransport(Segment own, std::vector<LocalPeer> others, bool everybody,
                                             absl::Duration timeout, WaitContext context)
    : own_(std::move(own)),
      others_(std::move(others)),
      everybody_(everybody),
      timeout_(std::clamp(timeout, absl::ZeroDuration(), absl::Hours(24 * 365))),
      context_(std::move(context)),
      filled_(static_cast<size_t>(own_.rings() * own_.slots())),
      pack_modes_(static_cast<size_t>(own_.rings())) {}

int64_t SharedMemoryTransport::IndexOf(int64_t rank) const {
  const auto at = std::lower_bound(others_.begin(), others_.end(), rank,
                                   [](const LocalPeer& peer, int64_t r) { return peer.rank < r; });
  return at != others_.end() && at->rank == rank ? at - others_.begin() : -1;
}

// By peer, starting with the first one after this rank, so that ranks do not all begin with the same one.
std::vector<Outgoing> SharedMemoryTransport::OutgoingOf(absl::Span<const packed::MessagePart> pieces) const {
  std::vector<absl::Span<const packed::MessagePart>> peers;
  for (size_t begin = 0; begin < pieces.size();) {
    size_t end = begin;
    while (end < pieces.size() && pieces[end].peer == pieces[begin].peer) ++end;
    peers.push_back(pieces.subspan(begin, end - begin));
    begin = end;
  }
  const auto first = std::find_if(peers.begin(), peers.end(), [&](const auto& of) { return of[0].peer > rank(); });
  std::rotate(peers.begin(), first, peers.end());
  std::vector<Outgoing> flows;
  for (const absl::Span<const packed::MessagePart> of : peers) {
    const Outgoing::Receiver receiver{static_cast<size_t>(IndexOf(of[0].peer)), own_.IndexOfRingTo(of[0].peer)};
    const auto same =
        std::find_if(flows.begin(), flows.end(), [&](const Outgoing& flow) { return AllAlike(flow.pieces, of); });
    if (same != flows.end()) {
      same->to.push_back(receiver);
      continue;
    }
    flows.push_back({{receiver}, of, SlotCuts(LengthsOf(of)), {}, 0, nullptr});
  }
  return flows;
}

void SharedMemoryTransport::AddIncoming(absl::Span<const packed::MessagePart> pieces, std::vector<Incoming>& in,
                                        MoveStats* stats) const {
  for (size_t begin = 0, end = 0; begin < pieces.size(); begin = end) {
    while (end < pieces.size() && pieces[end].peer == pieces[begin].peer) stats->received += pieces[end++].bytes;
    const absl::Span<const packed::MessagePart> of = pieces.subspan(begin, end - begin);
    in.push_back(IncomingFrom(of[0].peer, of, LengthsOf(of)));
  }
}

Incoming SharedMemoryTransport::IncomingFrom(int64_t rank, absl::Span<const packed::MessagePart> pieces,
                                             std::vector<int64_t> lengths) const {
  const auto k = static_cast<size_t>(IndexOf(rank));
  const Segment& segment = others_[k].segment;
  return {k,       &segment, segment.IndexOfRingTo(this->rank()), pieces, SlotCuts(std::move(lengths)), 0, nullptr,
          nullptr, {}};
}

// The slot cannot be filled while a receiver's ring is full, or while a receiver still reads what was in the slot that
// is packed into.
bool SharedMemoryTransport::Held(const Outgoing& flow, std::optional<int64_t> by) {
  const auto full = [&](const Outgoing::Receiver& receiver) {
    const Ring& ring = own_.ring(receiver.ring);
    return by.value_or(receiver.ring) == receiver.ring &&
           ring.filled.load(std::memory_order_relaxed) - ring.emptied.load() >= static_cast<uint64_t>(own_.slots());
  };
  const auto read = [&](const std::pair<int64_t, uint64_t>& lent) {
    return by.value_or(lent.first) == lent.first && own_.ring(lent.first).emptied.load() <= lent.second;
  };
  if (std::any_of(flow.to.begin(), flow.to.end(), full)) return true;
  const int64_t ring = flow.to[0].ring;
  const Filled& filled = FilledAt(ring, own_.ring(ring).filled.load(std::memory_order_relaxed));
  return std::any_of(filled.lent.begin(), filled.lent.end(), read);
}

SharedMemoryTransport::Slot SharedMemoryTransport::Begin(Outgoing& flow) {
  const int64_t ring = flow.to[0].ring;
  const uint64_t number = own_.ring(ring).filled.load(std::memory_order_relaxed);
  Filled& filled = FilledAt(ring, number);
  if (filled.bytes > 0) {
    const int64_t taken = filled.nanoseconds + filled.receivers * own_.header(ring, number).nanoseconds;
    pack_modes_[ring].Measured(filled.mode, static_cast<double>(taken) / static_cast<double>(filled.bytes));
  }
  filled = {{}, CopyMode::kCached, 0, 0, static_cast<int64_t>(flow.to.size())};
  return {own_.slot(ring, number), flow.left.Next(own_.slot_bytes(), &flow.cuts), ring, number};
}

void SharedMemoryTransport::Fill(Outgoing& flow) {
  const Slot slot = Begin(flow);
  Filled& filled = FilledAt(slot.ring, slot.number);
  if (slot.bytes >= kWorthMeasuring) {
    filled.mode = pack_modes_[slot.ring].Next();
    filled.bytes = slot.bytes;
  }
  const int64_t begin = Nanoseconds();
  RunCuts(flow.pieces, flow.cuts, /*written=*/false, [&](const packed::MessagePart& piece, const Cut& cut) {
    piece.copy->RunBytes(piece.fragment, StartOf(slot.data + cut.at, cut.begin), cut.begin, cut.end, filled.mode);
  });
  filled.nanoseconds = Nanoseconds() - begin;
  Publish(flow, slot);
}

void SharedMemoryTransport::Publish(Outgoing& flow, const Slot& slot) {
  Filled& filled = FilledAt(slot.ring, slot.number);
  ++flow.slots;
  for (const Outgoing::Receiver& receiver : flow.to) {
    Ring& to = own_.ring(receiver.ring);
    const uint64_t at = to.filled.load(std::memory_order_relaxed);
    own_.header(receiver.ring, at) = {tag_, slot.bytes, slot.ring, slot.number, 0};
    if (receiver.ring != slot.ring) {
      filled.lent.emplace_back(receiver.ring, at);
      FilledAt(receiver.ring, at).bytes = 0;  // nothing to learn from; it may still be lent itself
    }
    to.filled.store(at + 1);
  }
}

void SharedMemoryTransport::WakeReceivers(const Outgoing& flow) const {
  for (const Outgoing::Receiver& receiver : flow.to) others_[receiver.peer].segment.head().doorbell.WakeIfAsleep();
}

void SharedMemoryTransport::SetTag(uint64_t tag) {
  if (prepacked_ && prepacked_->tag != tag) Rollback();
  tag_ = tag;
}

// The receivers are not told yet: they must first learn that the ranks agree.
void SharedMemoryTransport::Prepack(uint64_t tag, absl::Span<const packed::MessagePart> sends, bool for_all) {
  Rollback();
  const int64_t begin = Nanoseconds();
  std::vector<Outgoing> out = OutgoingOf(sends);
  prepacked_.emplace(Prepacked{tag, {}, {}, 0});  // set first, so that filled slots can be taken back whatever happens
  for (const Outgoing& flow : out) {
    for (const Outgoing::Receiver& receiver : flow.to) {
      prepacked_->filled.emplace_back(receiver.ring, own_.ring(receiver.ring).filled.load(std::memory_order_relaxed));
    }
  }
  const uint64_t tag_now = std::exchange(tag_, tag);
  const int64_t most = for_all ? kContributionsAhead : own_.slots();
  for (int64_t slot = 0; slot < most; ++slot) {
    for (Outgoing& flow : out) {
      if (!flow.left.done() && Free(flow)) Fill(flow);
    }
  }
  tag_ = tag_now;
  for (Outgoing& flow : out) prepacked_->left.emplace_back(std::move(flow.left), flow.slots);
  prepacked_->seconds = static_cast<double>(Nanoseconds() - begin) * 1e-9;
}

void SharedMemoryTransport::Rollback() {
  if (!prepacked_) return;
  for (const auto& [ring, before] : prepacked_->filled) {
    std::atomic<uint64_t>& filled = own_.ring(ring).filled;
    for (uint64_t number = before; number < filled.load(std::memory_order_relaxed); ++number) {
      FilledAt(ring, number) = {};
    }
    filled.store(before);
  }
  prepacked_.reset();
}

absl::Status SharedMemoryTransport::ResumePrepacked(std::vector<Outgoing>& out, MoveStats* stats) {
  if (!prepacked_) return absl::OkStatus();
  if (prepacked_->left.size() != out.size()) {
    return absl::FailedPreconditionError("the step that is executed is not the one that was begun");
  }
  for (size_t i = 0; i < out.size(); ++i) std::tie(out[i].left, out[i].slots) = std::move(prepacked_->left[i]);
  stats->pack_seconds += prepacked_->seconds;
  prepacked_.reset();
  return absl::OkStatus();
}

absl::Status SharedMemoryTransport::Open(Incoming& flow) const {
  const Segment& segment = *flow.segment;
  SlotHeader& header = segment.header(flow.ring, flow.state().emptied.load(std::memory_order_relaxed));
  const int64_t expected = flow.left.Next(segment.slot_bytes(), &flow.cuts);
  if (header.tag != tag_ || header.bytes != expected || header.ring < 0 || header.ring >= segment.rings()) {
    return absl::FailedPreconditionError(absl::StrCat("rank ", others_[flow.peer].rank,
                                                      " sends something other than rank ", rank(),
                                                      " expects: they run different plans"));
  }
  flow.header = &header;
  flow.slot = segment.slot(header.ring, header.number);
  return absl::OkStatus();
}

absl::Status SharedMemoryTransport::Drive(std::vector<Outgoing>& out, const Outgoing* own_results,
                                          std::vector<Incoming>& in, absl::FunctionRef<absl::StatusOr<bool>()> take,
                                          absl::FunctionRef<void(int)> meanwhile, MoveStats* stats,
                                          packed::Stopwatch* stopwatch) {
  if (aborted_) return context_.find_culprit(-1, "");
  RETURN_IF_ERROR(ResumePrepacked(out, stats));
  const auto sending = [](const Outgoing& flow) { return !flow.left.done(); };
  const auto coming = [](const Incoming& flow) { return !flow.left.done(); };
  const auto turn = [](const Outgoing& flow) { return flow.results == nullptr || !ResultIsNext(&flow, *flow.results); };
  const auto awaits = [&](size_t k) {
    const int64_t ring = own_.IndexOfRingTo(others_[k].rank);
    const auto held = [&](const Outgoing& flow) { return sending(flow) && turn(flow) && Held(flow, ring); };
    return std::any_of(in.begin(), in.end(),
                       [&](const Incoming& flow) { return flow.peer == k && coming(flow) && !flow.ready(); }) ||
           std::any_of(out.begin(), out.end(), held) || (own_results != nullptr && held(*own_results));
  };
  // The first tensor that still has something to be packed, or a number after all tensors.
  const auto packing = [&] {
    int tensor = kNothingElse - 1;
    for (const Outgoing& flow : out) {
      if (sending(flow)) tensor = std::min(tensor, flow.pieces[flow.left.next()].tensor);
    }
    return tensor;
  };
  bool may_do_more = true;  // other than moving: `meanwhile`
  Waiter waiter(awaited());
  while (std::any_of(in.begin(), in.end(), coming) || std::any_of(out.begin(), out.end(), sending)) {
    bool filled = false;
    for (Outgoing& flow : out) {
      if (!sending(flow) || !turn(flow) || !Free(flow)) continue;
      Fill(flow);
      WakeReceivers(flow);
      filled = true;
    }
    if (filled) {
      if (may_do_more) meanwhile(packing());
      (*stopwatch)(&stats->pack_seconds);
    }
    ASSIGN_OR_RETURN(const bool took, take());
    if (took) (*stopwatch)(&stats->unpack_seconds);
    if (filled || took) {
      waiter.Progress();
    } else if (may_do_more) {
      meanwhile(kNothingElse);
      may_do_more = false;
      (*stopwatch)(&stats->unpack_seconds);
    } else {
      RETURN_IF_ERROR(waiter.Pause(awaits));
      (*stopwatch)(&stats->communicate_seconds);
    }
  }
  if (may_do_more) meanwhile(kNothingElse);
  (*stopwatch)(&stats->unpack_seconds);
  return absl::OkStatus();
}

absl::Status SharedMemoryTransport::Move(absl::Span<const packed::MessagePart> sends,
                                         absl::Span<const packed::MessagePart> receives, CopyMode mode,
                                         absl::FunctionRef<void(int)> meanwhile, MoveStats* stats,
                                         packed::Stopwatch* stopwatch) {
  std::vector<Outgoing> out = OutgoingOf(sends);
  std::vector<Incoming> in;
  AddIncoming(receives, in, stats);
  const auto take = [&]() -> absl::StatusOr<bool> {
    bool took = false;
    for (Incoming& flow : in) {
      if (flow.left.done() || !flow.ready()) continue;
      RETURN_IF_ERROR(Open(flow));
      const int64_t begin = Nanoseconds();
      Unpack(flow, mode);
      flow.Release(Nanoseconds() - begin);
      took = true;
    }
    return took;
  };
  return Drive(out, nullptr, in, take, meanwhile, stats, stopwatch);
}

// All ranks then cut pieces into slots alike.
absl::Status SharedMemoryTransport::CheckSameSlots(const std::vector<Incoming>& in) const {
  const bool same = std::all_of(in.begin(), in.end(), [&](const Incoming& flow) {
    return flow.segment->slot_bytes() == own_.slot_bytes() && flow.segment->slots() == own_.slots();
  });
  return same ? absl::OkStatus() : absl::InternalError("ranks of one host whose slots differ");
}

absl::Status SharedMemoryTransport::Combine(absl::Span<const packed::MessagePart> sends,
                                            absl::Span<const int64_t> senders, absl::Span<const int64_t> lengths,
                                            CombineBytes combine, MoveStats* stats, packed::Stopwatch* stopwatch) {
  std::vector<Outgoing> out = OutgoingOf(sends);
  std::vector<Incoming> in;
  for (const int64_t sender : senders) {
    in.push_back(IncomingFrom(sender, {}, {lengths.begin(), lengths.end()}));
  }
  RETURN_IF_ERROR(CheckSameSlots(in));
  std::vector<const char*> from(in.size());
  // The slots of all senders are cut alike, since their pieces have the same lengths.
  const auto take = [&]() -> absl::StatusOr<bool> {
    if (in.empty() || in[0].left.done()) return false;
    if (!std::all_of(in.begin(), in.end(), [](const Incoming& flow) { return flow.ready(); })) return false;
    for (Incoming& flow : in) {
      RETURN_IF_ERROR(Open(flow));
    }
    const int64_t begin = Nanoseconds();
    for (size_t c = 0; c < in[0].cuts.size(); ++c) {
      const Cut& cut = in[0].cuts[c];
      for (size_t i = 0; i < in.size(); ++i) from[i] = in[i].slot + cut.at;
      combine(cut.piece, cut.begin, cut.end, from);
      stats->received += (cut.end - cut.begin) * static_cast<int64_t>(in.size());
    }
    const int64_t each = (Nanoseconds() - begin) / static_cast<int64_t>(in.size());
    for (Incoming& flow : in) flow.Release(each);
    return true;
  };
  return Drive(
      out, nullptr, in, take, [](int) {}, stats, stopwatch);
}

absl::Status SharedMemoryTransport::AllGather(char* records, int64_t bytes) {
  if (aborted_) return context_.find_culprit(-1, "");
  for (int64_t at = 0; at < bytes; at += kMailboxBytes) {
    RETURN_IF_ERROR(AllGatherMailboxes(records + at, bytes, std::min(kMailboxBytes, bytes - at)));
  }
  return absl::OkStatus();
}

// `bytes` bytes of each record; record r starts at r * pitch.
absl::Status SharedMemoryTransport::AllGatherMailboxes(char* records, int64_t pitch, int64_t bytes) {
  const uint64_t number = posted_++;
  Head& head = own_.head();
  Mailbox& mine = head.mailboxes[number % 2];
  mine.bytes = bytes;
  std::memcpy(mine.data, records + rank() * pitch, static_cast<size_t>(bytes));
  head.posted.store(number + 1);
  for (const LocalPeer& peer : others_) peer.segment.head().doorbell.WakeIfAsleep();
  std::vector<char> missing(others_.size(), 1);
  size_t left = others_.size();
  Waiter waiter(awaited());
  while (left > 0) {
    bool moved = false;
    for (size_t k = 0; k < others_.size(); ++k) {
      const Head& theirs = others_[k].segment.head();
      if (missing[k] == 0 || theirs.posted.load() <= number) continue;
      const Mailbox& mailbox = theirs.mailboxes[number % 2];
      if (mailbox.bytes != bytes) {
        return absl::FailedPreconditionError(absl::StrCat("rank ", others_[k].rank,
                                                          " is in another operation than rank ", rank(),
                                                          ": all ranks must make the same calls"));
      }
      std::memcpy(records + others_[k].rank * pitch, mailbox.data, static_cast<size_t>(bytes));
      missing[k] = 0;
      --left;
      moved = true;
    }
    if (moved) {
      waiter.Progress();
    } else {
      RETURN_IF_ERROR(waiter.Pause([&](size_t k) { return missing[k] != 0; }));
    }
  }
  return absl::OkStatus();
}

void SharedMemoryTransport::Abort() {
  aborted_ = true;
  own_.head().doorbell.Wake();
}

void SharedMemoryTransport::Leave() {
  Abort();
  if (getpid() != creator_pid_) return;  // a copy in a forked child: the connections are the parent's, too
  for (const LocalPeer& peer : others_) shutdown(peer.connection.get(), SHUT_RDWR);
}

}  // namespace reshard::shared
