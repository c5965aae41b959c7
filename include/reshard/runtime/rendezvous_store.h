// Where the ranks of a communicator meet before they can talk to each other, and leave word when they no longer can.
#ifndef RESHARD_RUNTIME_RENDEZVOUS_STORE_H_
#define RESHARD_RUNTIME_RENDEZVOUS_STORE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace reshard {

// A key-value store that all ranks share, such as a c10d store, files, or a map between threads. Each key is written
// once. It need not be fast: it is used when ranks meet and when something has failed. Implementations must be
// thread-safe.
class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;
  // Stores a value.
  virtual absl::Status Set(const std::string& key, const std::string& value) = 0;
  // Waits for the key and returns its value. DeadlineExceeded if it does not appear within the timeout.
  virtual absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) = 0;
  // The value of the key, or nullopt if it is not there yet. Does not wait.
  virtual absl::StatusOr<std::optional<std::string>> TryGet(const std::string& key) = 0;
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_RENDEZVOUS_STORE_H_
