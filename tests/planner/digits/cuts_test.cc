// Cuts against a std::set.
#include "planner/digits/cuts.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <set>
#include <vector>

#include "tests/catch.h"
#include "tests/property.h"

namespace reshard::digits {
namespace {

TEST_CASE("cuts are a sorted set, and fit where they divide their neighbors") {
  const uint64_t seed = testing::Seed();
  std::mt19937_64 random(seed);
  for (int i = 0; i < 500; ++i) {
    INFO("seed " << seed << ", set " << i);
    Cuts cuts{1};
    std::set<int64_t> expected{1};
    for (auto left = random() % 12; left > 0; --left) {
      const auto cut = static_cast<int64_t>(1 + random() % 24);
      CHECK(cuts.Add(cut) == expected.insert(cut).second);
    }
    REQUIRE(std::vector<int64_t>(cuts.begin(), cuts.end()) == std::vector<int64_t>(expected.begin(), expected.end()));
    bool chain = true;
    for (auto it = expected.begin(); std::next(it) != expected.end(); ++it) chain = chain && *std::next(it) % *it == 0;
    CHECK(cuts.IsChain() == chain);
    for (int64_t cut = 1; cut <= 24; ++cut) {
      bool fits = true;
      if (const auto above = expected.upper_bound(cut); above != expected.end()) fits = *above % cut == 0;
      if (const auto below = expected.lower_bound(cut); below != expected.begin()) {
        fits = fits && cut % *std::prev(below) == 0;
      }
      CHECK(cuts.Fits(cut) == fits);
    }
  }
}

}  // namespace
}  // namespace reshard::digits
