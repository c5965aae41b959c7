#include "runtime/execute/culprit.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "reshard/runtime/communicator.h"
#include "runtime/execute/agreement.h"
#include "status/macros.h"

namespace reshard::execute {
namespace {

std::string Within(const Waiting& waiting) {
  return absl::StrCat("within ", absl::ToInt64Milliseconds(waiting.timeout), " ms at ", waiting.place);
}

}  // namespace

absl::Status GoneError(const Waiting& waiting, const std::vector<int64_t>& ranks) {
  const bool one = ranks.size() == 1;
  return absl::UnavailableError(absl::StrCat(ListRanks(ranks),
                                             one ? " is gone: its process has" : " are gone: their processes have",
                                             " ended or left the group, at ", waiting.place));
}

absl::Status SilentError(const Waiting& waiting, const std::vector<int64_t>& ranks) {
  return absl::UnavailableError(absl::StrCat(ListRanks(ranks), " did not arrive ", Within(waiting),
                                             ", nor answer: hanging, gone, or on a host that cannot be reached"));
}

absl::Status LateError(const Waiting& waiting, const std::vector<int64_t>& ranks) {
  return absl::DeadlineExceededError(absl::StrCat(ListRanks(ranks), " did not arrive ", Within(waiting)));
}

absl::Status CulpritError(const Waiting& waiting, absl::Span<const PeerAnswer> answers) {
  using Kind = PeerAnswer::Kind;
  using Phase = PeerState::Phase;
  const auto those = [&](auto condition) {
    std::vector<int64_t> ranks;
    for (int64_t r = 0; r < static_cast<int64_t>(answers.size()); ++r) {
      if (r != waiting.rank && condition(answers[r])) ranks.push_back(r);
    }
    return ranks;
  };
  const auto lost =
      those([](const PeerAnswer& a) { return a.kind == Kind::kState && a.state.phase == Phase::kFailed; });
  if (!lost.empty()) return absl::AbortedError(answers[lost[0]].state.message);
  const auto gone = those([](const PeerAnswer& a) { return a.kind == Kind::kGone; });
  if (!gone.empty()) return GoneError(waiting, gone);
  const auto behind = [&](const PeerAnswer& a) {
    return a.kind == Kind::kState && a.state.operations < waiting.operations;
  };
  const auto idle = those([&](const PeerAnswer& a) { return behind(a) && a.state.phase == Phase::kIdle; });
  if (!idle.empty()) return LateError(waiting, idle);
  const auto silent = those([](const PeerAnswer& a) { return a.kind == Kind::kSilent; });
  if (!silent.empty()) return SilentError(waiting, silent);
  const auto late = those(behind);
  if (!late.empty()) return LateError(waiting, late);
  const std::string said = waiting.reason.empty() ? "" : absl::StrCat(" (", waiting.reason.substr(0, 200), ")");
  return absl::UnavailableError(absl::StrCat("rank ", waiting.rank, ": ", waiting.place, " did not end", said,
                                             ", although all ranks have begun it: the device or the network hangs"));
}

// Stores a code and a message. A disagreement is the same error for every rank; any other error is another rank's.
void SharedVerdict::Broadcast(const absl::Status& error) const {
  if (store_ == nullptr) return;
  const bool disagreement = absl::IsFailedPrecondition(error) && NamesRanks(error);
  store_
      ->Set(key_, absl::StrCat(disagreement ? "=" : "!",
                               NamesRanks(error) ? "" : absl::StrCat("rank ", rank_, " failed: "), error.message()))
      .IgnoreError();
}

absl::StatusOr<std::optional<absl::Status>> SharedVerdict::Read() const {
  if (store_ == nullptr) return std::nullopt;
  ASSIGN_OR_RETURN(const std::optional<std::string> text, store_->TryGet(key_));
  if (!text) return std::nullopt;
  const std::string message = text->substr(std::min<size_t>(1, text->size()));
  return std::optional<absl::Status>(text->substr(0, 1) == "=" ? DisagreementError(message)
                                                               : absl::AbortedError(message));
}

}  // namespace reshard::execute
