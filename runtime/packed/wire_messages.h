// Which transfers of a step travel together, on which sender and receiver must agree.
//
// Small transfers to one peer share a message; a transfer of kOwnMessageBytes or more has a message of its own. Both
// sides decide this by the number of bytes alone, so that they agree without communicating.
#ifndef RESHARD_RUNTIME_PACKED_WIRE_MESSAGES_H_
#define RESHARD_RUNTIME_PACKED_WIRE_MESSAGES_H_

#include <cstdint>
#include <vector>

#include "reshard/runtime/strided_copy.h"

namespace reshard::packed {

inline constexpr int64_t kOwnMessageBytes = int64_t{256} << 10;

// Bytes of one fragment that go to, or come from, one peer.
struct MessagePart {
  int64_t peer = 0;
  char* fragment = nullptr;           // where the copy's fragment side starts; only read when sending
  const StridedCopy* copy = nullptr;  // fragment -> message when sending, message -> fragment when receiving
  int64_t bytes = 0;
  int tensor = 0;
};

// Pieces of one peer that travel together, one after the other.
struct WireMessage {
  int64_t peer = 0;
  int64_t bytes = 0;
  std::vector<const MessagePart*> pieces;
  int64_t staged_at = -1;  // byte offset in the staging memory, see PlaceStaging; -1: it needs none

  // True if it is one piece without gaps in its fragment, which is sent from there, or received into it.
  bool direct() const { return pieces.size() == 1 && pieces[0]->copy->contiguous(); }
};

// Groups pieces, which are ordered by peer, into messages: for each peer one per large piece, in order, and one for all
// small pieces, after these. Starts with the first peer after `rank`, so that ranks do not all
// begin with the same one.
std::vector<WireMessage> MessagesOf(const std::vector<MessagePart>& pieces, int64_t rank);

// Assigns staging memory to every message that is not direct. Returns the total size in bytes.
int64_t PlaceStaging(std::vector<WireMessage>& messages);

}  // namespace reshard::packed

#endif  // RESHARD_RUNTIME_PACKED_WIRE_MESSAGES_H_
