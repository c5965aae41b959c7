// How a rank waits for its peers.
#ifndef RESHARD_RUNTIME_SHARED_WAITER_H_
#define RESHARD_RUNTIME_SHARED_WAITER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "runtime/shared/shared_memory_transport.h"

namespace reshard::shared {

// Used in a loop that looks at all that may have come: after a round that found something Progress(), after one that
// found nothing Pause().
class Waiter {
 public:
  explicit Waiter(SharedMemoryTransport& transport);
  ~Waiter();

  void Progress();
  // awaits(k): whether the k-th peer has to do something before this rank can go on. Returns OK when it is worth
  // looking again, else the error that ends the wait. A peer counts as gone when the caller has looked once more
  // since it ended: what it did before may have come after the last look.
  absl::Status Pause(absl::FunctionRef<bool(size_t)> awaits);

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<const LocalPeer*> Awaited(absl::FunctionRef<bool(size_t)> awaits) const;
  // Nothing came for a while: are those that are awaited still there?
  absl::Status Check(absl::FunctionRef<bool(size_t)> awaits);

  SharedMemoryTransport& transport_;
  std::optional<Clock::time_point> since_;  // nothing has come
  bool announced_ = false;                  // others ring
  bool told_ = false;                       // whom this rank waits for
  const LocalPeer* ended_ = nullptr;        // was seen to have ended; the caller looks once more
  uint32_t rung_ = 0;
};

}  // namespace reshard::shared

#endif  // RESHARD_RUNTIME_SHARED_WAITER_H_
