// Contiguous messages between ranks: all that a backend which packs has to provide. See packed_step.h for the rest.
#ifndef RESHARD_RUNTIME_CORE_MESSAGE_TRANSPORT_H_
#define RESHARD_RUNTIME_CORE_MESSAGE_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"

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
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_CORE_MESSAGE_TRANSPORT_H_
