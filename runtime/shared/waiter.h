// How a rank waits for its peers.
#ifndef RESHARD_RUNTIME_SHARED_WAITER_H_
#define RESHARD_RUNTIME_SHARED_WAITER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/shared/bootstrap.h"
#include "runtime/shared/segment.h"

namespace reshard::shared {

// What a rank that waits tells its owner, and asks it.
struct WaitContext {
  // This rank waits for that one; -1: for several.
  std::function<void(int64_t rank)> waiting;
  // Turns what went wrong while it waited into an error that names the culprit. `reason` is empty after a
  // timeout, and after an abort.
  std::function<absl::Status(int64_t rank, const std::string& reason)> find_culprit;
};

// Whom a rank waits for, and how long. Everything referred to outlives the waiter.
struct Awaited {
  Doorbell& doorbell;  // of the rank that waits
  const std::vector<LocalPeer>& peers;
  const absl::Duration& timeout;  // in which nothing came
  const WaitContext& context;
  const std::atomic<bool>& aborted;  // every wait ends at once
};

// Used in a loop that looks at all that may have come: after a round that found something Progress(), after one that
// found nothing Pause(). It first yields its core for some microseconds, then sleeps until it is rung.
class Waiter {
 public:
  explicit Waiter(const Awaited& awaited);
  ~Waiter();

  void Progress();
  // awaits(k): whether the k-th peer has to do something before this rank can go on. Returns OK when it is worth
  // looking again, else the error that ends the wait. A peer counts as gone when the caller has looked once more
  // since it ended: what it did before may have come after the last look.
  absl::Status Pause(absl::FunctionRef<bool(size_t)> awaits);

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<const LocalPeer*> PeersAwaited(absl::FunctionRef<bool(size_t)> awaits) const;
  // Nothing came for a while: are those that are awaited still there?
  absl::Status Check(absl::FunctionRef<bool(size_t)> awaits);

  const Awaited awaited_;
  std::optional<Clock::time_point> since_;  // nothing has come
  bool announced_ = false;                  // others ring
  bool told_ = false;                       // whom this rank waits for
  const LocalPeer* ended_ = nullptr;        // was seen to have ended; the caller looks once more
  uint32_t rung_ = 0;
};

}  // namespace reshard::shared

#endif  // RESHARD_RUNTIME_SHARED_WAITER_H_
