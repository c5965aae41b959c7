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

// Callbacks to the communicator that owns the transport.
struct WaitContext {
  // Tells that this rank waits for `rank`; -1: for several.
  std::function<void(int64_t rank)> waiting;
  // Turns what went wrong while it waited into an error that names the culprit. `reason` is empty after a
  // timeout, and after an abort.
  std::function<absl::Status(int64_t rank, const std::string& reason)> find_culprit;
};

// Whom a rank waits for, and how long. Everything that it refers to must outlive the waiter.
struct Awaited {
  Doorbell& doorbell;  // of the rank that waits
  const std::vector<LocalPeer>& peers;
  const absl::Duration& timeout;  // the stall timeout
  const WaitContext& context;
  const std::atomic<bool>& aborted;  // if true, every wait ends at once
};

// For a loop that looks at everything that may have come: call Progress() after a round that found something, Pause()
// after one that found nothing. Pause at first yields the core for some microseconds, later sleeps until the doorbell
// rings.
class Waiter {
 public:
  explicit Waiter(const Awaited& awaited);
  ~Waiter();

  void Progress();
  // awaits(k): whether the k-th peer has to do something before this rank can go on. Returns OK when it is worth
  // looking again, else the error that ends the wait. A peer counts as gone only if the caller has looked once more
  // since it ended: what it did before may have come after the last look.
  absl::Status Pause(absl::FunctionRef<bool(size_t)> awaits);

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<const LocalPeer*> PeersAwaited(absl::FunctionRef<bool(size_t)> awaits) const;
  // Called when nothing came for a while: checks whether the awaited peers are still there.
  absl::Status Check(absl::FunctionRef<bool(size_t)> awaits);

  const Awaited awaited_;
  std::optional<Clock::time_point> since_;  // since when nothing has come
  bool announced_ = false;                  // others ring
  bool told_ = false;                       // the owner knows whom this rank waits for
  const LocalPeer* ended_ = nullptr;        // was seen to have ended; the caller looks once more
  uint32_t rung_ = 0;
};

}  // namespace reshard::shared

#endif  // RESHARD_RUNTIME_SHARED_WAITER_H_
