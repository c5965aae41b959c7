// Options of communicators between processes, whatever carries their messages.
#ifndef RESHARD_RUNTIME_PEER_OPTIONS_H_
#define RESHARD_RUNTIME_PEER_OPTIONS_H_

#include "absl/time/time.h"
#include "reshard/runtime/communicator.h"

namespace reshard {

// The same on all ranks.
struct PeerOptions {
  // How long a rank waits for another at any one point.
  absl::Duration timeout = DefaultTimeout();
  // Whether ranks of one host exchange through shared memory.
  bool shared_memory = DefaultSharedMemory();
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_PEER_OPTIONS_H_
