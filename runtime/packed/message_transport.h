// Contiguous messages between ranks: all that a backend has to provide if data is packed for it. packed_step.h does the
// rest.
#ifndef RESHARD_RUNTIME_PACKED_MESSAGE_TRANSPORT_H_
#define RESHARD_RUNTIME_PACKED_MESSAGE_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace reshard::packed {

// One round of messages. The k-th message that a rank sends to a peer in a round is the k-th one that the peer receives
// from it, with the same number of bytes; no message is empty, and none goes to its sender. Memory that was passed must
// not be touched until the matching wait has returned. Destroying a round abandons what is still in flight: after that,
// nothing reads or writes the memory.
class MessageRound {
 public:
  virtual ~MessageRound() = default;
  virtual absl::Status PostReceive(int64_t peer, void* data, int64_t bytes) = 0;
  virtual absl::Status PostSend(int64_t peer, const void* data, int64_t bytes) = 0;
  // All messages of the round have been posted.
  virtual absl::Status Posted() = 0;
  // The index-th receive posted has arrived. Errors name the culprit.
  virtual absl::Status WaitReceive(size_t index) = 0;
  // All sends are done, so that their memory may be reused.
  virtual absl::Status WaitSends() = 0;
};

class MessageTransport {
 public:
  virtual ~MessageTransport() = default;
  virtual std::unique_ptr<MessageRound> NewRound() = 0;

  // Whether a step with these figures, which are the same on all ranks, should be one all-to-all of all ranks rather
  // than single messages. False if the ranks are not 0 .. world-1.
  virtual bool PrefersAllToAll(int64_t recv_bytes_max, int64_t peers_max) const = 0;
  // Sends a possibly empty message from every rank to every rank, itself included. Both buffers hold the messages in
  // rank order without gaps; a rank's message to itself has the same length on both sides. Collective over all ranks.
  virtual absl::Status AllToAll(const void* send, absl::Span<const int64_t> send_bytes, void* receive,
                                absl::Span<const int64_t> receive_bytes) = 0;
  virtual int64_t world_size() const = 0;
};

}  // namespace reshard::packed

#endif  // RESHARD_RUNTIME_PACKED_MESSAGE_TRANSPORT_H_
