#include "runtime/shared/patience.h"

#include <poll.h>
#include <sched.h>

#include <utility>
#include <vector>

namespace reshard::shared {
namespace {

// How long a rank offers its core to others before it sleeps. Waking a sleeper costs as much, so this at most doubles
// the wait; and with more ranks than cores the ones that are still to come run at once.
constexpr auto kYieldTime = std::chrono::microseconds(50);
// How long before it looks whether those it waits for are still there.
constexpr auto kNap = std::chrono::milliseconds(20);

// Whether the other end has been closed.
bool Closed(const Descriptor& descriptor) {
  if (!descriptor) return false;
  pollfd entry{descriptor.get(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & (POLLIN | POLLHUP | POLLERR)) != 0;
}

// The rank of the one that is awaited, -1 where there are several.
int64_t OnlyOne(const std::vector<const Neighbor*>& awaited) { return awaited.size() == 1 ? awaited[0]->rank : -1; }

}  // namespace

Patience::Patience(Neighbors& neighbors) : neighbors_(neighbors) {}

Patience::~Patience() { Progress(); }

void Patience::Progress() {
  if (announced_) neighbors_.own_.head().bell.Woken();
  announced_ = false;
  since_.reset();
  told_ = false;
  ended_ = nullptr;
}

absl::Status Patience::Pause(absl::FunctionRef<bool(size_t)> awaits) {
  const Clock::time_point now = Clock::now();
  if (!since_) since_ = now;
  if (now - *since_ < kYieldTime) {
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
  if (!told_) neighbors_.watch_.waiting(OnlyOne(Awaited(awaits)));
  told_ = true;
  bell.Sleep(rung_, kNap);
  rung_ = bell.rung();
  return Check(awaits);
}

std::vector<const Neighbor*> Patience::Awaited(absl::FunctionRef<bool(size_t)> awaits) const {
  std::vector<const Neighbor*> awaited;
  for (size_t k = 0; k < neighbors_.others_.size(); ++k) {
    if (awaits(k)) awaited.push_back(&neighbors_.others_[k]);
  }
  return awaited;
}

absl::Status Patience::Check(absl::FunctionRef<bool(size_t)> awaits) {
  const std::vector<const Neighbor*> awaited = Awaited(awaits);
  const int64_t culprit = OnlyOne(awaited);
  if (neighbors_.aborted_) return neighbors_.watch_.blame(culprit, "");
  const auto waited = Clock::now() - *since_;
  if (waited > absl::ToChronoNanoseconds(neighbors_.timeout_)) return neighbors_.watch_.blame(culprit, "");
  if (waited < kNap) return absl::OkStatus();
  for (const Neighbor* const neighbor : awaited) {
    if (!Closed(neighbor->connection) && !Closed(neighbor->process)) continue;
    if (std::exchange(ended_, neighbor) != neighbor) return absl::OkStatus();
    return neighbors_.watch_.blame(neighbor->rank, "it has closed its connection to this host's other ranks");
  }
  return absl::OkStatus();
}

}  // namespace reshard::shared
