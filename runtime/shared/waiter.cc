#include "runtime/shared/waiter.h"

#include <poll.h>
#include <sched.h>

#include <utility>
#include <vector>

namespace reshard::shared {
namespace {

// How long a rank yields its core to others before it sleeps. Waking a sleeper costs about as much, so this at most
// doubles the wait; and with more ranks than cores, those that have yet to come run at once.
constexpr auto kYieldTime = std::chrono::microseconds(50);
// How long it sleeps before it checks whether the ranks that it waits for are still there.
constexpr auto kNap = std::chrono::milliseconds(20);

// Whether the other end has been closed.
bool Closed(const Descriptor& descriptor) {
  if (!descriptor) return false;
  pollfd entry{descriptor.get(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & (POLLIN | POLLHUP | POLLERR)) != 0;
}

// The rank of the only peer that is awaited; -1 if there are several.
int64_t OnlyOne(const std::vector<const LocalPeer*>& awaited) { return awaited.size() == 1 ? awaited[0]->rank : -1; }

}  // namespace

Waiter::Waiter(const Awaited& awaited) : awaited_(awaited) {}

Waiter::~Waiter() { Progress(); }

void Waiter::Progress() {
  if (announced_) awaited_.doorbell.Woken();
  announced_ = false;
  since_.reset();
  told_ = false;
  ended_ = nullptr;
}

absl::Status Waiter::Pause(absl::FunctionRef<bool(size_t)> awaits) {
  const Clock::time_point now = Clock::now();
  if (!since_) since_ = now;
  if (now - *since_ < kYieldTime) {
    sched_yield();
    return absl::OkStatus();
  }
  Doorbell& doorbell = awaited_.doorbell;
  if (!announced_) {
    // Others ring from now on; the caller looks once more before this rank sleeps.
    doorbell.AboutToSleep();
    announced_ = true;
    rung_ = doorbell.rung();
    return awaited_.aborted ? Check(awaits) : absl::OkStatus();
  }
  if (!told_) awaited_.context.waiting(OnlyOne(PeersAwaited(awaits)));
  told_ = true;
  doorbell.Sleep(rung_, kNap);
  rung_ = doorbell.rung();
  return Check(awaits);
}

std::vector<const LocalPeer*> Waiter::PeersAwaited(absl::FunctionRef<bool(size_t)> awaits) const {
  std::vector<const LocalPeer*> awaited;
  for (size_t k = 0; k < awaited_.peers.size(); ++k) {
    if (awaits(k)) awaited.push_back(&awaited_.peers[k]);
  }
  return awaited;
}

absl::Status Waiter::Check(absl::FunctionRef<bool(size_t)> awaits) {
  const std::vector<const LocalPeer*> awaited = PeersAwaited(awaits);
  const int64_t culprit = OnlyOne(awaited);
  if (awaited_.aborted) return awaited_.context.find_culprit(culprit, "");
  const auto waited = Clock::now() - *since_;
  if (waited > absl::ToChronoNanoseconds(awaited_.timeout)) return awaited_.context.find_culprit(culprit, "");
  if (waited < kNap) return absl::OkStatus();
  for (const LocalPeer* const peer : awaited) {
    if (!Closed(peer->connection) && !Closed(peer->process)) continue;
    if (std::exchange(ended_, peer) != peer) return absl::OkStatus();
    return awaited_.context.find_culprit(peer->rank, "it has closed its connection to this host's other ranks");
  }
  return absl::OkStatus();
}

}  // namespace reshard::shared
