#include "runtime/packed/wire_messages.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "runtime/host/host_pool.h"

namespace reshard::packed {

std::vector<WireMessage> MessagesOf(const std::vector<MessagePart>& pieces, int64_t rank) {
  std::vector<WireMessage> messages;
  messages.reserve(pieces.size());
  const auto first = std::find_if(pieces.begin(), pieces.end(), [&](const MessagePart& p) { return p.peer > rank; });
  const auto begin = static_cast<size_t>(first - pieces.begin());
  WireMessage shared;
  const auto close = [&] {
    if (!shared.pieces.empty()) messages.push_back(std::move(shared));
    shared = {};
  };
  for (size_t k = 0; k < pieces.size(); ++k) {
    const MessagePart& piece = pieces[(begin + k) % pieces.size()];
    if (shared.peer != piece.peer) close();
    shared.peer = piece.peer;
    if (piece.bytes >= kOwnMessageBytes) {
      messages.push_back({piece.peer, piece.bytes, {&piece}});
    } else {
      shared.bytes += piece.bytes;
      shared.pieces.push_back(&piece);
    }
  }
  close();
  return messages;
}

int64_t PlaceStaging(std::vector<WireMessage>& messages) {
  int64_t bytes = 0;
  for (WireMessage& message : messages) {
    if (message.direct()) continue;
    message.staged_at = bytes;
    bytes += host::AlignedHostBytes(message.bytes);
  }
  return bytes;
}

}  // namespace reshard::packed
