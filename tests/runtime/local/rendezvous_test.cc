// Meetings whose ranks leave, or run out of time, all at once.
#include "runtime/local/rendezvous.h"

#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"

namespace reshard::local {
namespace {

TEST_CASE("a rank that leaves after a meeting does not undo it for those that have not seen it yet") {
  // More than there are cores, so that some are stopped at every point of their wait.
  std::vector<int64_t> ids(32);
  std::iota(ids.begin(), ids.end(), 0);
  for (int round = 0; round < 100; ++round) {
    Rendezvous rendezvous(ids, absl::Seconds(60));
    std::vector<absl::Status> met(ids.size());
    std::vector<std::thread> ranks;
    for (size_t i = 0; i < ids.size(); ++i) {
      ranks.emplace_back([&, i] {
        met[i] = rendezvous.Arrive(i, "the end");
        rendezvous.Leave(i);
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (const absl::Status& status : met) REQUIRE(status.ToString() == "OK");
  }
}

TEST_CASE("ranks whose time is up together do not meet again without the rank they missed") {
  std::vector<int64_t> ids(3);
  std::iota(ids.begin(), ids.end(), 0);
  for (int round = 0; round < 20'000; ++round) {
    Rendezvous rendezvous(ids, absl::ZeroDuration());
    std::vector<absl::Status> first(2);
    std::vector<absl::Status> again(2);
    std::vector<std::thread> ranks;
    for (size_t i = 0; i < 2; ++i) {
      ranks.emplace_back([&, i] {
        first[i] = rendezvous.Arrive(i, "a step");
        again[i] = rendezvous.Arrive(i, "the next one");
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (size_t i = 0; i < 2; ++i) {
      REQUIRE(first[i].code() == absl::StatusCode::kDeadlineExceeded);
      REQUIRE(again[i] == first[i]);
    }
  }
}

}  // namespace
}  // namespace reshard::local
