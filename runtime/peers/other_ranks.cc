#include "runtime/peers/other_ranks.h"

#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace reshard::peers {
namespace {

// Time limits for finding out which rank is the culprit: in all, and for one silent peer.
constexpr absl::Duration kAskAll = absl::Milliseconds(600);
constexpr absl::Duration kAskOne = absl::Milliseconds(250);

// The key of the verdict in the store, for ranks that could not even meet.
constexpr char kVerdictKey[] = "reshard/verdict";

std::string Said(const std::string& reason) {
  return reason.empty() ? "" : absl::StrCat(" (", reason.substr(0, 200), ")");
}

}  // namespace

void OtherRanks::Use(std::function<void()> abort, std::function<std::unique_ptr<RendezvousStore>()> store) {
  store_ = std::move(store);
  board_.OnFailure([this, abort = std::move(abort)](const std::string& message) {
    {
      const status::MutexLock lock(mutex_);
      told_ = message;
    }
    abort();
  });
}

void OtherRanks::Begin(absl::string_view place) {
  place_ = std::string(place);
  begun_ = absl::Now();
  GoOn();
}

void OtherRanks::GoOn() {
  ++operations_;
  board_.Begin(operations_, place_);
}

void OtherRanks::GiveUpRendezvous(const std::vector<PeerAddress>& addresses, const absl::Status& error) const {
  execute::SharedVerdict(Store().get(), kVerdictKey, rank_).Broadcast(error);
  Broadcast(addresses, std::string(error.message()));
}

std::vector<int64_t> OtherRanks::FindGone(absl::Span<const int64_t> ranks) const {
  std::vector<PeerAddress> asked(addresses_.size());  // the others have no port, so they are not asked
  for (const int64_t r : ranks) {
    if (r >= 0 && r < static_cast<int64_t>(asked.size())) asked[r] = addresses_[r];
  }
  std::vector<PeerAnswer> answers(asked.size());
  ForEach(asked, [&](size_t r) { answers[r] = AskPeer(asked[r], kAskOne); });
  std::vector<int64_t> gone;
  for (size_t r = 0; r < answers.size(); ++r) {
    if (answers[r].kind == PeerAnswer::Kind::kGone) gone.push_back(static_cast<int64_t>(r));
  }
  return gone;
}

absl::Status OtherRanks::FindCulprit(int64_t peer, const std::string& reason) {
  const std::string known = told();
  const absl::Status status = !known.empty() ? absl::AbortedError(known)
                              : peer < 0     ? CulpritAmongAll(reason)
                              : met()        ? FollowWaits(peer, reason)
                                             : CulpritBeforeRendezvous(peer, reason);
  Fail(status);
  return status;
}

void OtherRanks::Fail(const absl::Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  const std::string message(status.message());
  board_.Fail(message);
  Broadcast(addresses_, message);
}

const absl::Status& OtherRanks::PollFailure() {
  const std::string known = told();
  if (failure_.ok() && !known.empty()) failure_ = absl::AbortedError(known);
  return failure_;
}

std::string OtherRanks::told() const {
  const status::MutexLock lock(mutex_);
  return told_;
}

// Asks all ranks at once. A rank that found out before this one may have ended since, but it told the others first, so
// what was told counts more than who is gone.
absl::Status OtherRanks::CulpritAmongAll(const std::string& reason) {
  std::vector<PeerAnswer> answers(addresses_.size());
  ForEach(addresses_, [&](size_t r) { answers[r] = AskPeer(addresses_[r], kAskAll); });
  const std::string known = told();
  if (!known.empty()) return absl::AbortedError(known);
  return execute::CulpritError(WaitingHere(reason), answers);
}

execute::Waiting OtherRanks::WaitingHere(const std::string& reason) const {
  return {rank_, operations_, place_, timeout_, reason};
}

// Before the ranks have met.
absl::Status OtherRanks::CulpritBeforeRendezvous(int64_t peer, const std::string& reason) const {
  const absl::StatusOr<std::optional<absl::Status>> verdict =
      execute::SharedVerdict(Store().get(), kVerdictKey, rank_).Read();
  // The peer may have left because of this, too, and could not tell any rank.
  if (!verdict.ok()) {
    return absl::UnavailableError(absl::StrCat("the store that the group was made with is gone at ", place_,
                                               ", with the process that keeps it: rank 0, unless it was started apart",
                                               Said(reason)));
  }
  if (verdict->has_value()) return **verdict;
  // A broken connection ends a wait before its time.
  if (absl::Now() - begun_ < timeout_) {
    return absl::UnavailableError(absl::StrCat("rank ", peer, " did not arrive at ", place_, Said(reason)));
  }
  return execute::LateError(WaitingHere(reason), {peer});
}

// Follows the chain of ranks that wait for each other.
absl::Status OtherRanks::FollowWaits(int64_t peer, const std::string& reason) {
  const execute::Waiting waiting = WaitingHere(reason);
  const absl::Time deadline = absl::Now() + kAskAll;
  std::vector<bool> asked(static_cast<size_t>(size_));
  while (absl::Now() < deadline) {
    asked[peer] = true;
    const PeerAnswer answer = AskPeer(addresses_[peer], kAskOne);
    if (answer.kind != PeerAnswer::Kind::kState) {
      // It may have found out before this rank, told the others, and left.
      const std::string known = told();
      if (!known.empty()) return absl::AbortedError(known);
      return answer.kind == PeerAnswer::Kind::kGone ? execute::GoneError(waiting, {peer})
                                                    : execute::SilentError(waiting, {peer});
    }
    if (answer.state.phase == PeerState::Phase::kFailed) return absl::AbortedError(answer.state.message);
    // A rank that waits for another is not the culprit, even when it is behind.
    if (answer.state.phase == PeerState::Phase::kRunning && answer.state.waiting_for == PeerState::kEverybody) {
      return CulpritAmongAll(reason);
    }
    const int64_t next = answer.state.phase == PeerState::Phase::kRunning ? answer.state.waiting_for : -1;
    if (next >= 0 && next < size_ && next != rank_ && !asked[next]) {
      peer = next;
      continue;
    }
    if (answer.state.operations < operations_) return execute::LateError(waiting, {peer});
    break;
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "rank ", peer, " did not go on within ", absl::ToInt64Milliseconds(timeout_), " ms at ", place_, Said(reason)));
}

std::unique_ptr<RendezvousStore> OtherRanks::Store() const { return store_ ? store_() : nullptr; }

void OtherRanks::Broadcast(const std::vector<PeerAddress>& addresses, const std::string& message) const {
  ForEach(addresses, [&](size_t r) { SendFailure(addresses[r], message, kAskOne); });
}

// Calls f(r) for all other ranks that can be reached, all at once: one that is silent must not delay the rest.
void OtherRanks::ForEach(const std::vector<PeerAddress>& addresses, const std::function<void(size_t)>& f) const {
  std::vector<std::thread> threads;
  for (size_t r = 0; r < addresses.size(); ++r) {
    if (static_cast<int64_t>(r) == rank_ || addresses[r].port == 0) continue;
    try {
      threads.emplace_back([&f, r] { f(r); });
    } catch (const std::system_error&) {
      break;  // no thread could be started: the others find out by waiting, and count as silent
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace reshard::peers
