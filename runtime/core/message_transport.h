// Contiguous messages between ranks: all that a backend which packs has to provide. See packed_step.h for the rest.
#ifndef RESHARD_RUNTIME_CORE_MESSAGE_TRANSPORT_H_
#define RESHARD_RUNTIME_CORE_MESSAGE_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace reshard {

// One round of messages. The k-th message that a rank sends to a peer in a round is the k-th that the peer receives
// from it, with the same number of bytes; no message is empty and none goes to its sender. Memory handed over stays
// untouched until the matching wait has returned. Destroying a round abandons what is still in flight: afterwards
// nothing reads or writes that memory.
class MessageRound {
 public:
  virtual ~MessageRound() = default;
  virtual absl::Status PostReceive(int64_t peer, void* data, int64_t bytes) = 0;
  virtual absl::Status PostSend(int64_t peer, const void* data, int64_t bytes) = 0;
  // All messages of the round have been posted.
  virtual absl::Status Posted() = 0;
  // The index-th receive posted has arrived. Errors name the rank that is to blame.
  virtual absl::Status WaitReceive(size_t index) = 0;
  // All sends may be forgotten.
  virtual absl::Status WaitSends() = 0;
};

class MessageTransport {
 public:
  virtual ~MessageTransport() = default;
  virtual std::unique_ptr<MessageRound> NewRound() = 0;

  // Whether a step of these figures, which all ranks know alike, had better be one all-to-all of everybody than single
  // messages. False where ranks are not 0 .. world-1.
  virtual bool PrefersAllToAll(int64_t recv_bytes_max, int64_t peers_max) const = 0;
  // A message, empty perhaps, from every rank to every rank, itself included. Both buffers hold them in the order of
  // the ranks without gaps; a rank's message to itself has the same length on both sides. Collective over all ranks.
  virtual absl::Status AllToAll(const void* send, absl::Span<const int64_t> send_bytes, void* receive,
                                absl::Span<const int64_t> receive_bytes) = 0;
  virtual int64_t world_size() const = 0;
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_CORE_MESSAGE_TRANSPORT_H_
