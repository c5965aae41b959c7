#include "runtime/local/rendezvous.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/host/futex.h"

namespace reshard::local {
namespace {

using Clock = std::chrono::steady_clock;

// How long a waiting rank yields its core to others before it sleeps. Waking a sleeper costs about as much, so this at
// most doubles the wait; and with more ranks than cores, those that have yet to come run at once.
constexpr auto kYieldTime = std::chrono::microseconds(50);

}  // namespace

Rendezvous::Rendezvous(const std::vector<int64_t>& device_ids, absl::Duration timeout)
    : device_ids_(device_ids),
      // Within what a clock can add.
      timeout_(std::clamp(timeout, absl::ZeroDuration(), absl::Hours(24 * 365))),
      places_(device_ids.size()) {}

absl::Status Rendezvous::Arrive(size_t index, absl::string_view place, absl::FunctionRef<void()> last) {
  if (failed()) return failure();
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed);
  places_[index].arrived.store(epoch + 1, std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == places_.size()) {
    last();
    arrived_.store(0, std::memory_order_relaxed);
    epoch_.store(epoch + 1, std::memory_order_release);
    Signal();
    return absl::OkStatus();
  }
  return Wait(epoch, place);
}

absl::Status Rendezvous::Wait(uint32_t epoch, absl::string_view place) {
  const auto completed = [&] { return epoch_.load(std::memory_order_acquire) != epoch; };
  const auto start = Clock::now();
  do {
    if (completed()) return absl::OkStatus();
    sched_yield();
  } while (Clock::now() - start < kYieldTime);
  const auto deadline = start + absl::ToChronoNanoseconds(timeout_);
  while (true) {
    // Read before the conditions, so that a change after them ends the sleep.
    const uint32_t signal = signal_.load(std::memory_order_acquire);
    // Read before the epoch: a rank that leaves or fails after the meeting was complete does not undo it.
    const bool lost = failed();
    const bool left_early = left_.load(std::memory_order_acquire) > 0;
    if (completed()) return absl::OkStatus();
    if (lost) return failure();
    if (left_early) {
      const std::string ranks = Ranks([](const Place& p) { return p.left.load(std::memory_order_acquire); });
      Fail(absl::UnavailableError(absl::StrCat(ranks, " left; the others wait at ", place)), -1);
      return failure();
    }
    const auto left = deadline - Clock::now();
    if (left <= Clock::duration::zero()) {
      const std::string ranks =
          Ranks([&](const Place& p) { return p.arrived.load(std::memory_order_relaxed) != epoch + 1; });
      if (completed()) return absl::OkStatus();
      Fail(absl::DeadlineExceededError(
               absl::StrCat(ranks, " did not arrive within ", absl::FormatDuration(timeout_), " at ", place)),
           -1);
      return failure();
    }
    host::FutexWait(signal_, signal, std::chrono::duration_cast<std::chrono::nanoseconds>(left),
                    host::FutexScope::kThreads);
  }
}

void Rendezvous::Fail(size_t index, const absl::Status& status) {
  Fail(absl::AbortedError(absl::StrCat("rank ", device_ids_[index], " failed: ", status.message())),
       static_cast<int64_t>(index));
}

void Rendezvous::Leave(size_t index) {
  places_[index].left.store(true, std::memory_order_release);
  left_.fetch_add(1, std::memory_order_acq_rel);
  Signal();
}

void Rendezvous::Fail(absl::Status status, int64_t culprit) {
  {
    const status::MutexLock lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = std::move(status);
    first_failure_ = culprit;
    // Before any rank can read the failure: a rank that was told of it and arrives again must not count for this
    // meeting.
    failed_.store(true, std::memory_order_release);
  }
  Signal();
}

void Rendezvous::Signal() {
  signal_.fetch_add(1, std::memory_order_acq_rel);
  host::FutexWakeAll(signal_, host::FutexScope::kThreads);
}

absl::Status Rendezvous::failure() const {
  const status::MutexLock lock(mutex_);
  return failure_;
}

int64_t Rendezvous::first_failure() const {
  const status::MutexLock lock(mutex_);
  return first_failure_;
}

std::string Rendezvous::Ranks(absl::FunctionRef<bool(const Place&)> condition) const {
  constexpr int64_t kShown = 8;
  std::string shown;
  int64_t count = 0;
  for (size_t i = 0; i < places_.size(); ++i) {
    if (!condition(places_[i])) continue;
    if (count < kShown) absl::StrAppend(&shown, count > 0 ? ", " : "", device_ids_[i]);
    ++count;
  }
  if (count > kShown) absl::StrAppend(&shown, " and ", count - kShown, " more");
  return absl::StrCat(count == 1 ? "rank " : "ranks ", shown);
}

void AccessGate::CloseAndWait() {
  closed_.store(true);
  for (int i = 0; inside_.load() != 0; ++i) {
    if (i < 100) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

}  // namespace reshard::local
