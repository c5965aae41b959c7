#include "planner/transfers/assign_senders.h"

#include <algorithm>
#include <random>

#include "tests/catch.h"

namespace reshard::transfers {
namespace {

// The least load of the busiest sender, by trying everything.
int64_t LeastBusiest(const std::vector<Request>& requests, size_t at, std::vector<int64_t>& loads) {
  if (at == requests.size()) return *std::max_element(loads.begin(), loads.end());
  int64_t least = INT64_MAX;
  for (const int32_t sender : requests[at].candidates) {
    loads[sender] += requests[at].elements;
    least = std::min(least, LeastBusiest(requests, at + 1, loads));
    loads[sender] -= requests[at].elements;
  }
  return least;
}

TEST_CASE("every request has one of its candidates, and the loads are theirs") {
  std::vector<int64_t> loads(3, 0);
  const std::vector<Request> requests = {{1, {0}}, {1, {0, 1}}, {1, {0, 1, 2}}};
  CHECK(AssignSenders(requests, loads) == std::vector<int32_t>{0, 1, 2});
  CHECK(loads == std::vector<int64_t>{1, 1, 1});
  CHECK(AssignSenders({}, loads).empty());
}

TEST_CASE("requests of one size leave the busiest sender as idle as can be") {
  std::mt19937_64 random(testing::Seed());
  for (int trial = 0; trial < 2000; ++trial) {
    INFO("seed " << testing::Seed() << ", trial " << trial);
    const size_t senders = 1 + random() % 5, count = random() % 8;
    std::vector<Request> requests;
    for (size_t i = 0; i < count; ++i) {
      Request request{3, {}};
      for (size_t s = 0; s < senders; ++s) {
        if (random() % 2 == 0) request.candidates.push_back(static_cast<int32_t>(s));
      }
      if (request.candidates.empty()) request.candidates = {static_cast<int32_t>(random() % senders)};
      std::shuffle(request.candidates.begin(), request.candidates.end(), random);
      requests.push_back(std::move(request));
    }
    std::vector<int64_t> none(senders, 0), loads = none, counted = none;
    const std::vector<int32_t> chosen = AssignSenders(requests, loads);
    for (size_t i = 0; i < count; ++i) {
      const auto& candidates = requests[i].candidates;
      REQUIRE(std::find(candidates.begin(), candidates.end(), chosen[i]) != candidates.end());
      counted[chosen[i]] += 3;
    }
    REQUIRE(loads == counted);
    REQUIRE(*std::max_element(loads.begin(), loads.end()) == LeastBusiest(requests, 0, none));
  }
}

}  // namespace
}  // namespace reshard::transfers
