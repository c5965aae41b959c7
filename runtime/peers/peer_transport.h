// What carries messages between processes, plus what a communicator over it needs: deadlines, culprits, an end.
#ifndef RESHARD_RUNTIME_PEERS_PEER_TRANSPORT_H_
#define RESHARD_RUNTIME_PEERS_PEER_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "reshard/runtime/rendezvous_store.h"
#include "runtime/packed/message_transport.h"

namespace reshard::peers {

// Turns what went wrong while waiting for `peer` (-1: for all ranks) into an error that names the culprit.
// `reason` is what the transport said; empty after a timeout, or if a peer has reported a failure.
using FindCulprit = std::function<absl::Status(int64_t peer, const std::string& reason)>;

// Its ranks are 0 .. world_size() - 1. A wait for another rank ends after the timeout that the transport was made with;
// it is announced on the peer board, and what went wrong in it is turned into an error that names the culprit.
class PeerTransport : public packed::MessageTransport {
 public:
  // Unavailable: what messages go over is gone. Calls return this after the communicator was closed.
  virtual absl::Status Gone() const = 0;
  // Takes hold of what messages go over, for one operation. Returns Gone() if it is gone. FailedPrecondition: it cannot
  // carry host memory.
  virtual absl::Status Begin() = 0;
  virtual void End() {}
  // Sets the number that later rounds carry. It is the same on all ranks and differs between operations and between
  // plans, so that messages of different operations, which would differ in length, are not matched.
  virtual void Use(int64_t operation) = 0;
  // Makes the round in progress, if any, and all later ones fail immediately. Thread-safe.
  virtual void Abort() = 0;
  // The store where ranks that cannot reach each other leave word; null if there is none.
  virtual std::unique_ptr<RendezvousStore> Store() { return nullptr; }
};

}  // namespace reshard::peers

#endif  // RESHARD_RUNTIME_PEERS_PEER_TRANSPORT_H_
