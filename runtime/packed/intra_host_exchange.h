// Pieces between ranks that share memory: the sender packs them where the receiver unpacks them from, and no message is
// in between.
#ifndef RESHARD_RUNTIME_PACKED_INTRA_HOST_EXCHANGE_H_
#define RESHARD_RUNTIME_PACKED_INTRA_HOST_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "reshard/runtime/communicator.h"
#include "runtime/packed/stopwatch.h"
#include "runtime/packed/wire_messages.h"

namespace reshard::packed {

class IntraHostExchange {
 public:
  virtual ~IntraHostExchange() = default;

  // What Move says when nothing else can be done; more than any tensor's number.
  static constexpr int kNothingElse = std::numeric_limits<int>::max();

  // Whether this rank and that one share memory; the same on both.
  virtual bool Reaches(int64_t rank) const = 0;
  // Whether all ranks of the world share memory with each other; the same on all.
  virtual bool everybody() const = 0;

  // Moves pieces to and from ranks that it reaches. Both lists are ordered by peer; what one rank sends to another are
  // pieces of the same lengths in the same order as what the other receives from it. `mode` says how what arrives is
  // written. Calls meanwhile(t) when something has been packed: all that is sent of the tensors before the t-th; and
  // once, when nothing else can be done, with kNothingElse. Counts what arrives as received, and the time.
  // Errors name the culprit; after one nothing can be moved any more.
  virtual absl::Status Move(absl::Span<const MessagePart> sends, absl::Span<const MessagePart> receives, CopyMode mode,
                            absl::FunctionRef<void(int)> meanwhile, MoveStats* stats, Stopwatch* stopwatch) = 0;

  // Packs of what the next Move or Combine sends, or with `for_all` the next CombineForAll, as much as fits without
  // waiting. `tag` is that of this move; before any other one, what was packed is taken back. Until then no other rank
  // may look for it.
  virtual void Prepack(uint64_t tag, absl::Span<const MessagePart> sends, bool for_all) = 0;

  // Bytes [begin, end) of the piece-th piece of every sender: from[i] is where those of the i-th sender are.
  using CombineBytes =
      absl::FunctionRef<void(size_t piece, int64_t begin, int64_t end, absl::Span<const char* const> from)>;

  // Moves pieces that are combined as they come, instead of being unpacked. `senders` are ascending; each sends this
  // rank pieces of these lengths, in this order, none of them empty. Calls `combine` once for each byte of each piece;
  // begin is a multiple of 64. Otherwise as Move.
  virtual absl::Status Combine(absl::Span<const MessagePart> sends, absl::Span<const int64_t> senders,
                               absl::Span<const int64_t> lengths, CombineBytes combine, MoveStats* stats,
                               Stopwatch* stopwatch) = 0;

  // As CombineBytes; what comes out is written to `to`, through the caches.
  using CombineInto =
      absl::FunctionRef<void(size_t piece, int64_t begin, int64_t end, absl::Span<const char* const> from, char* to)>;

  // As Combine among ranks each of which gets what any of them combines: block by block, as soon as it is combined.
  // Each sends to, and receives from, all others. `results` are the pieces that this rank combines: where they go on
  // this rank; their peers mean nothing. `takes` are those that come from others, ordered by peer. `mode` says how both
  // are written.
  virtual absl::Status CombineForAll(absl::Span<const MessagePart> sends, absl::Span<const int64_t> senders,
                                     absl::Span<const MessagePart> results, CombineInto combine,
                                     absl::Span<const MessagePart> takes, CopyMode mode, MoveStats* stats,
                                     Stopwatch* stopwatch) = 0;
};

}  // namespace reshard::packed

#endif  // RESHARD_RUNTIME_PACKED_INTRA_HOST_EXCHANGE_H_
