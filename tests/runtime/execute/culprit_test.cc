// Who is named for an operation that is late, given what the ranks say.
#include "runtime/execute/culprit.h"

#include <map>
#include <string>
#include <vector>

#include "reshard/runtime/communicator.h"
#include "runtime/execute/agreement.h"
#include "tests/catch.h"

namespace reshard::execute {
namespace {

using Kind = PeerAnswer::Kind;
using Phase = PeerState::Phase;

constexpr int64_t kBegun = 7;
const PeerAnswer kHere{Kind::kState, {Phase::kRunning, kBegun, -1, ""}};
const PeerAnswer kIdleBehind{Kind::kState, {Phase::kIdle, kBegun - 1, -1, ""}};
const PeerAnswer kRunsBehind{Kind::kState, {Phase::kRunning, kBegun - 1, 2, ""}};
const PeerAnswer kGone{Kind::kGone, {}};
const PeerAnswer kSilent{Kind::kSilent, {}};
const PeerAnswer kFailed{Kind::kState, {Phase::kFailed, kBegun, -1, "rank 9 is gone"}};

absl::Status CulpritOf(const std::vector<PeerAnswer>& answers) {
  return CulpritError({0, kBegun, "AllToAll", absl::Milliseconds(500), "broken pipe"}, answers);
}

TEST_CASE("the worst that any rank says decides, whatever the others say") {
  const std::vector<std::pair<PeerAnswer, absl::Status>> by_rank = {
      {kFailed, absl::AbortedError("rank 9 is gone")},
      {kGone, absl::UnavailableError("rank 1 is gone: its process has ended or left the group, at AllToAll")},
      {kIdleBehind, absl::DeadlineExceededError("rank 1 did not arrive within 500 ms at AllToAll")},
      {kSilent,
       absl::UnavailableError("rank 1 did not arrive within 500 ms at AllToAll, nor answer: hanging, gone, or on a "
                              "host that cannot be reached")},
      {kRunsBehind, absl::DeadlineExceededError("rank 1 did not arrive within 500 ms at AllToAll")},
      {kHere,
       absl::UnavailableError("rank 0: AllToAll did not end (broken pipe), although all ranks have begun it: the "
                              "device or the network hangs")},
  };
  for (size_t worst = 0; worst < by_rank.size(); ++worst) {
    for (size_t other = worst + 1; other < by_rank.size(); ++other) {
      CAPTURE(worst, other);
      // What this rank says of itself does not count.
      CHECK(CulpritOf({kGone, by_rank[worst].first, by_rank[other].first, kHere}) == by_rank[worst].second);
    }
    CHECK(NamesRanks(by_rank[worst].second));
  }
  CHECK(CulpritOf({kHere, kHere}) == by_rank.back().second);
}

TEST_CASE("all of those that are alike are named") {
  CHECK(CulpritOf({kHere, kGone, kSilent, kGone}).message() ==
        "ranks 1, 3 are gone: their processes have ended or left the group, at AllToAll");
  CHECK(CulpritOf({kHere, kRunsBehind, kHere, kRunsBehind}).message() ==
        "ranks 1, 3 did not arrive within 500 ms at AllToAll");
}

// One process as all ranks.
class MapStore final : public RendezvousStore {
 public:
  absl::Status Set(const std::string& key, const std::string& value) override {
    if (gone) return absl::UnavailableError("gone");
    values[key] = value;
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration) override { return values.at(key); }
  absl::StatusOr<std::optional<std::string>> TryGet(const std::string& key) override {
    if (gone) return absl::UnavailableError("gone");
    const auto found = values.find(key);
    return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
  }

  std::map<std::string, std::string> values;
  bool gone = false;
};

TEST_CASE("a verdict in a store is every other rank's error") {
  MapStore store;
  const SharedVerdict mine(&store, "verdict", 3), theirs(&store, "verdict", 5);
  CHECK(theirs.Read().value() == std::nullopt);
  SECTION("one that names a rank is passed on") {
    mine.Broadcast(absl::DeadlineExceededError("rank 1 did not arrive"));
    CHECK(*theirs.Read().value() == absl::AbortedError("rank 1 did not arrive"));
  }
  SECTION("any other is this rank's") {
    mine.Broadcast(absl::ResourceExhaustedError("no memory"));
    CHECK(*theirs.Read().value() == absl::AbortedError("rank 3 failed: no memory"));
    mine.Broadcast(absl::FailedPreconditionError("no backend"));
    CHECK(*theirs.Read().value() == absl::AbortedError("rank 3 failed: no backend"));
  }
  SECTION("a disagreement is everybody's") {
    mine.Broadcast(DisagreementError("ranks disagree on target"));
    const absl::Status read = *theirs.Read().value();
    CHECK(read == DisagreementError("ranks disagree on target"));
    CHECK(NamesRanks(read));
  }
  SECTION("without a store nobody is told, and nobody has told") {
    const SharedVerdict nowhere(nullptr, "verdict", 3);
    nowhere.Broadcast(absl::AbortedError("rank 1"));
    CHECK(nowhere.Read().value() == std::nullopt);
  }
  SECTION("a store that is gone is not a verdict") {
    store.gone = true;
    mine.Broadcast(absl::AbortedError("rank 1"));
    CHECK(absl::IsUnavailable(theirs.Read().status()));
  }
}

TEST_CASE("what is about other ranks is known without its text") {
  CHECK_FALSE(NamesRanks(absl::FailedPreconditionError("ranks disagree on target")));
  CHECK(NamesRanks(DisagreementError("anything")));
  CHECK(NamesRanks(FailedEarlier("executor", DisagreementError("anything"))));
  CHECK_FALSE(NamesRanks(absl::OkStatus()));
  CHECK_FALSE(NamesRanks(absl::InvalidArgumentError("rank 2 is gone")));
  const absl::Status lost = FailedEarlier("communicator", absl::UnavailableError("rank 1 is gone"));
  CHECK(lost == absl::UnavailableError("this communicator was lost earlier: rank 1 is gone"));
}

}  // namespace
}  // namespace reshard::execute
