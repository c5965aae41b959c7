// Which transfers of a step travel together: what sender and receiver must see alike.
//
// Small transfers to one peer share a message; a transfer of kOwnMessageBytes or more has one of its own. Both sides
// decide that from the number of bytes alone, so that they agree without asking.
#ifndef RESHARD_RUNTIME_CORE_WIRE_MESSAGES_H_
#define RESHARD_RUNTIME_CORE_WIRE_MESSAGES_H_

#include <cstdint>
#include <vector>

#include "reshard/runtime/strided_copy.h"

namespace reshard {

inline constexpr int64_t kOwnMessageBytes = int64_t{256} << 10;

// Bytes of one fragment that go to, or come from, one peer.
struct Piece {
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
  std::vector<const Piece*> pieces;
  int64_t staged_at = -1;  // its place in the staging; -1: it needs none, see PlaceStaging

  // One piece that lies in its fragment without gaps: sent from there, or received into it.
  bool direct() const { return pieces.size() == 1 && pieces[0]->copy->contiguous(); }
};

// The messages of pieces that are ordered by peer: per peer the large pieces in order and the small ones in one, which
// comes where the last of them stands. Starts with the first peer after `rank`, so that ranks do not all begin with the
// same one.
std::vector<WireMessage> MessagesOf(const std::vector<Piece>& pieces, int64_t rank);

// Gives every message that is not direct its place. Returns the bytes of all.
int64_t PlaceStaging(std::vector<WireMessage>& messages);

}  // namespace reshard

#endif  // RESHARD_RUNTIME_CORE_WIRE_MESSAGES_H_
