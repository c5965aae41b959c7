// Moves pieces between ranks that share memory: the sender packs them where the receiver unpacks them from, with no
// message in between.
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

  // What Move passes to `meanwhile` when nothing else can be done; larger than any tensor's number.
  static constexpr int kNothingElse = std::numeric_limits<int>::max();

  // Whether this rank and that one share memory; the same on both.
  virtual bool Reaches(int64_t rank) const = 0;
  // Whether all ranks of the world share memory with each other; the same on all.
  virtual bool everybody() const = 0;

  // Moves pieces to and from ranks that it reaches. Both lists are ordered by peer; the pieces that one rank sends to
  // another have the same lengths, in the same order, as those that the other receives from it. `mode` says how
  // received pieces are written. When something has been packed, calls meanwhile(t): everything to be sent of the
  // tensors before the t-th is packed. Calls meanwhile(kNothingElse) once, when nothing else can be done. Counts what
  // arrives as received, and the time. Errors name the culprit; after an error nothing can be moved any more.
  virtual absl::Status Move(absl::Span<const MessagePart> sends, absl::Span<const MessagePart> receives, CopyMode mode,
                            absl::FunctionRef<void(int)> meanwhile, MoveStats* stats, Stopwatch* stopwatch) = 0;

  // Packs as much as fits without waiting of what the next Move or Combine sends, or with `for_all` the next
  // CombineForAll. `tag` is the tag of that move; before a move with a different tag, what was packed is taken back.
  // Until that move no other rank may look for it.
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

  // As Combine, but every rank also gets what the others combine, block by block, as soon as it is combined. Each rank
  // sends to, and receives from, all others. `results` are the pieces that this rank combines: where they go on this
  // rank; their peers mean nothing. `takes` are the pieces that others combine, ordered by peer. `mode` says how both
  // are written.
  virtual absl::Status CombineForAll(absl::Span<const MessagePart> sends, absl::Span<const int64_t> senders,
                                     absl::Span<const MessagePart> results, CombineInto combine,
                                     absl::Span<const MessagePart> takes, CopyMode mode, MoveStats* stats,
                                     Stopwatch* stopwatch) = 0;
};

}  // namespace reshard::packed

#endif  // RESHARD_RUNTIME_PACKED_INTRA_HOST_EXCHANGE_H_
