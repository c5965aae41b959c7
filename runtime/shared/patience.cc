#include "runtime/shared/patience.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace reshard::shared {
namespace {

// How long a rank offers its core to others before it sleeps. Waking a sleeper costs as much, so this at most doubles
// the wait; and with more ranks than cores the ones that are still to come run at once.
constexpr auto kYieldTime = std::chrono::microseconds(50);
// How long before it looks whether those it waits for are still there.
constexpr int64_t kNap = 20000;  // microseconds

// Whether the other end has been closed.
bool Closed(const Descriptor& descriptor) {
  if (!descriptor) return false;
  pollfd entry{descriptor.get(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & (POLLIN | POLLHUP | POLLERR)) != 0;
}

}  // namespace

Patience::Patience(Neighbors& neighbors) : neighbors_(neighbors) {}

Patience::~Patience() { Progress(); }

void Patience::Progress() {
  if (announced_) neighbors_.own_.head().bell.Woken();
  announced_ = false;
  begun_ = false;
  told_ = false;
}

absl::Status Patience::Pause(absl::FunctionRef<bool(size_t)> awaits) {
  const Clock::time_point now = Clock::now();
  if (!begun_) {
    since_ = now;
    begun_ = true;
  }
  if (now - since_ < kYieldTime) {
    sched_yield();
    return absl::OkStatus();
  }
  Bell& bell = neighbors_.own_.head().bell;
  if (!announced_) {
    // Others ring from now on; the caller looks once more before this rank sleeps.
    bell.AboutToSleep();
    announced_ = true;
    rung_ = bell.rung();
    return neighbors_.aborted_ ? Check(awaits) : absl::OkStatus();
  }
  if (!told_) {
    int64_t rank = -1;
    int64_t count = 0;
    for (size_t k = 0; k < neighbors_.others_.size(); ++k) {
      if (awaits(k) && count++ == 0) rank = neighbors_.others_[k].rank;
    }
    neighbors_.watch_.waiting(count == 1 ? rank : -1);
    told_ = true;
  }
  bell.Sleep(rung_, kNap);
  rung_ = bell.rung();
  return Check(awaits);
}

absl::Status Patience::Check(absl::FunctionRef<bool(size_t)> awaits) {
  std::vector<int64_t> awaited;
  for (size_t k = 0; k < neighbors_.others_.size(); ++k) {
    if (awaits(k)) awaited.push_back(neighbors_.others_[k].rank);
  }
  const int64_t culprit = awaited.size() == 1 ? awaited[0] : -1;
  if (neighbors_.aborted_) return neighbors_.watch_.blame(culprit, "");
  const auto waited = Clock::now() - since_;
  if (waited > absl::ToChronoNanoseconds(neighbors_.timeout_)) return neighbors_.watch_.blame(culprit, "");
  if (waited < std::chrono::microseconds(kNap)) return absl::OkStatus();
  for (const int64_t rank : awaited) {
    const Neighbor& neighbor = neighbors_.others_[static_cast<size_t>(neighbors_.IndexOf(rank))];
    if (!Closed(neighbor.connection) && !Closed(neighbor.process)) continue;
    return neighbors_.watch_.blame(rank, "it has closed its connection to this host's other ranks");
  }
  return absl::OkStatus();
}

}  // namespace reshard::shared
