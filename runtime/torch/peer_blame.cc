#include "runtime/torch/peer_blame.h"

#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"

namespace reshard {
namespace {

// Calls f(r) for all other ranks that can be reached, all at once: one that is silent must not delay the rest.
void ForEachOther(const std::vector<PeerAddress>& peers, int64_t rank, const std::function<void(size_t)>& f) {
  std::vector<std::thread> threads;
  for (size_t r = 0; r < peers.size(); ++r) {
    if (static_cast<int64_t>(r) == rank || peers[r].port == 0) continue;
    try {
      threads.emplace_back([&f, r] { f(r); });
    } catch (const std::system_error&) {
      break;  // no threads to be had: the others find out by waiting, and count as silent
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

absl::Status BlameAnybody(const std::vector<PeerAddress>& peers, const WaitingRank& waiting, const std::string& reason,
                          const std::function<std::string()>& told) {
  const std::string said = reason.empty() ? "" : absl::StrCat(" (", reason.substr(0, 200), ")");
  std::vector<PeerAnswer> answers(peers.size());
  ForEachOther(peers, waiting.rank, [&](size_t r) { answers[r] = AskPeer(peers[r], kAskAllPeers); });
  const std::string known = told();
  if (!known.empty()) return absl::AbortedError(known);
  const auto first = [&](auto condition) {
    for (int64_t r = 0; r < static_cast<int64_t>(answers.size()); ++r) {
      if (r != waiting.rank && condition(answers[static_cast<size_t>(r)])) return r;
    }
    return int64_t{-1};
  };
  using Kind = PeerAnswer::Kind;
  using Phase = PeerState::Phase;
  const int64_t lost_rank =
      first([](const PeerAnswer& a) { return a.kind == Kind::kState && a.state.phase == Phase::kLost; });
  if (lost_rank >= 0) return absl::AbortedError(answers[static_cast<size_t>(lost_rank)].state.message);
  const int64_t gone = first([](const PeerAnswer& a) { return a.kind == Kind::kGone; });
  if (gone >= 0) return PeerIsGone(gone, waiting.place);
  const std::string waited = absl::StrCat(absl::ToInt64Milliseconds(waiting.timeout), " ms at ", waiting.place);
  const auto behind = [&](const PeerAnswer& a) {
    return a.kind == Kind::kState && a.state.operations < waiting.operations;
  };
  const int64_t late = first([&](const PeerAnswer& a) { return behind(a) && a.state.phase == Phase::kIdle; });
  if (late >= 0) return absl::DeadlineExceededError(absl::StrCat("rank ", late, " did not arrive within ", waited));
  const int64_t silent = first([](const PeerAnswer& a) { return a.kind == Kind::kSilent; });
  if (silent >= 0) return PeerIsSilent(silent, waiting.place);
  const int64_t slow = first(behind);
  if (slow >= 0) return absl::DeadlineExceededError(absl::StrCat("rank ", slow, " did not answer within ", waited));
  return absl::UnavailableError(absl::StrCat("communication failed at ", waiting.place, said));
}

absl::Status PeerIsGone(int64_t peer, const std::string& place) {
  return absl::UnavailableError(absl::StrCat("rank ", peer, " is gone: its process has ended, at ", place));
}

absl::Status PeerIsSilent(int64_t peer, const std::string& place) {
  return absl::UnavailableError(
      absl::StrCat("rank ", peer, " does not answer: its process hangs or its host cannot be reached, at ", place));
}

void TellOthers(const std::vector<PeerAddress>& peers, int64_t rank, const std::string& message) {
  ForEachOther(peers, rank, [&](size_t r) { TellPeer(peers[r], message, kAskOnePeer); });
}

}  // namespace reshard
