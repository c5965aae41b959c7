// Where the ranks of a LocalWorld meet: a barrier with deadlines that every failure ends, and the gate to other ranks'
// memory.
#ifndef RESHARD_RUNTIME_LOCAL_RENDEZVOUS_H_
#define RESHARD_RUNTIME_LOCAL_RENDEZVOUS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "status/mutex.h"

namespace reshard::local {

// A reusable barrier for a fixed set of ranks. It is lost for good when a rank fails, leaves while others wait for it,
// or does not arrive in time; then every wait, present and future, ends with the same error.
//
// No rank holds a lock. A rank that waits first yields its core for some microseconds, in which the others usually
// arrive, then sleeps on a futex; the last to arrive wakes all at once.
class Rendezvous {
 public:
  // `device_ids` names the ranks in messages and must outlive the object.
  Rendezvous(const std::vector<int64_t>& device_ids, absl::Duration timeout);

  // Returns when all ranks have arrived as often as this one. The last to arrive calls `last` before any is released.
  // What a rank wrote before it arrived is visible to `last` and to every rank afterwards. `place` is where the rank
  // waits, for messages.
  // Unavailable: a rank left. DeadlineExceeded: one did not arrive. Otherwise the error of the rank that failed.
  absl::Status Arrive(
      size_t index, absl::string_view place, absl::FunctionRef<void()> last = [] {});

  // This rank fails with `status`: all others get Aborted "rank N failed: ...". The first failure counts.
  void Fail(size_t index, const absl::Status& status);
  // This rank will not arrive again.
  void Leave(size_t index);

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // The error that every rank gets once the rendezvous is lost; OK before that.
  absl::Status failure() const;
  // The rank whose Fail came first, or -1.
  int64_t first_failure() const;

 private:
  struct alignas(64) Place {
    std::atomic<uint32_t> arrived{0};  // the epoch that the rank has arrived for
    std::atomic<bool> left{false};
  };

  absl::Status Wait(uint32_t epoch, absl::string_view place);
  void Fail(absl::Status status, int64_t culprit);
  void Signal();
  // "rank 2", "ranks 2, 5 and 7 more" for the ranks that meet the condition.
  std::string Ranks(absl::FunctionRef<bool(const Place&)> condition) const;

  const std::vector<int64_t>& device_ids_;
  const absl::Duration timeout_;
  std::vector<Place> places_;
  alignas(64) std::atomic<size_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};   // meetings completed
  alignas(64) std::atomic<uint32_t> signal_{0};  // what waiters sleep on; changes with anything they wait for
  std::atomic<int64_t> left_{0};
  std::atomic<bool> failed_{false};
  mutable status::Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  int64_t first_failure_ ABSL_GUARDED_BY(mutex_) = -1;
};

// Counts the ranks that are inside other ranks' memory, so that a rank whose step failed can free its memory without
// pulling it out from under a copy.
class AccessGate {
 public:
  // Returns false once the gate is closed. A rank that enters does a bounded amount of work and exits.
  bool Enter() {
    inside_.fetch_add(1);
    if (!closed_.load()) return true;
    inside_.fetch_sub(1);
    return false;
  }
  void Exit() { inside_.fetch_sub(1); }
  // Those inside should finish early.
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  // Post-condition: no rank is inside and none ever gets in again.
  void CloseAndWait();

 private:
  // Entering adds before it looks, closing sets before it counts: at least one sees the other.
  std::atomic<int64_t> inside_{0};
  std::atomic<bool> closed_{false};
};

}  // namespace reshard::local

#endif  // RESHARD_RUNTIME_LOCAL_RENDEZVOUS_H_
