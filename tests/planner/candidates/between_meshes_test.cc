// Chains between two meshes in which no byte crosses twice.
#include "planner/candidates/between_meshes.h"

#include <algorithm>
#include <limits>

#include "reshard/planner/planner.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/oracle_of.h"
#include "tests/planner/candidates/chains.h"

namespace reshard {
namespace {

using candidates::CrossingBytes;
using candidates::CrossOnceChains;
using testing::Chain;
using testing::HoldingsOf;
using testing::LayoutOf;
using testing::WrongWith;

absl::StatusOr<Plan> Within(const Layout& from, const Layout& to) { return MakePlan({from, to, DType::kI8}); }

int64_t Crossing(const Layout& source, const Chain& chain) {
  return CrossingBytes(cost::Price(source, chain, DType::kI8, {}).value());
}

// Elements that devices of the target need and that the source has on none of the target's devices.
int64_t Missing(const Layout& source, const Layout& target) {
  const oracle::Holdings from = HoldingsOf(source), to = HoldingsOf(target);
  oracle::ElementSet needed(to.elements), there(to.elements);
  for (size_t q = 0; q < to.sets.size(); ++q) {
    needed.Merge(to.sets[q]);
    const int64_t p = from.layout.mesh.Position(to.layout.mesh.ids[q]);
    if (p >= 0) there.Merge(from.sets[p]);
  }
  return needed.Count() - needed.CountCommon(there);
}

}  // namespace

TEST_CASE("replicas share the sending, and what replicas share is gathered there") {
  const Layout source = LayoutOf("[64, 8]", "{dp:4}");
  const Layout target = LayoutOf("[64, 8]", "{r:2}@4");
  const std::vector<Chain> chains = CrossOnceChains(source, target, Within);
  REQUIRE_FALSE(chains.empty());
  int in_full = 0;
  for (const Chain& chain : chains) {
    INFO(testing::Text(source, chain));
    CHECK(WrongWith(source, target, chain) == "");
    if (chain.size() != 3) continue;
    ++in_full;
    const Plan plan = testing::PlanOf(source, target, chain);
    CHECK(plan.steps[0].op == Op::kSlice);
    CHECK(plan.steps[1].crosses_meshes());
    CHECK(plan.steps[1].recv_bytes_total == 64 * 8);
    CHECK(plan.steps[1].send_bytes_max == 64 * 8 / 4);
    CHECK(plan.steps[2].op == Op::kAllGather);
  }
  CHECK(in_full > 0);
}

TEST_CASE("one holder for every element on both sides leaves nothing to share") {
  CHECK(CrossOnceChains(LayoutOf("[<dp>64]", "{dp:4}"), LayoutOf("[<r>64]", "{r:2}@4"), Within).empty());
  CHECK(CrossOnceChains(LayoutOf("[<X:(2)2>8, <X:(1)2>8]", "{X:4}"), LayoutOf("[8, 8]", "{}@4"), Within).empty());
  // Half of X replicates.
  CHECK_FALSE(CrossOnceChains(LayoutOf("[<X:(2)2>8, 8]", "{X:4}"), LayoutOf("[8, 8]", "{}@4"), Within).empty());
}

TEST_CASE("a dimension with fewer elements than replicas is not cut among them") {
  const Layout source = LayoutOf("[3, 8]", "{dp:4}"), target = LayoutOf("[3, 8]", "{r:2}@4");
  const std::vector<Chain> chains = CrossOnceChains(source, target, Within);
  REQUIRE_FALSE(chains.empty());
  for (const Chain& chain : chains) {
    INFO(testing::Text(source, chain));
    CHECK(WrongWith(source, target, chain) == "");
    for (const cost::ChainStep& step : chain) CHECK(step.to.dim(0).factors.empty());
  }
  CHECK(CrossOnceChains(LayoutOf("[3]", "{dp:4}"), LayoutOf("[3]", "{r:2}@4"), Within).empty());
}

TEST_CASE("what is partial is reduced before it crosses") {
  const Layout source = LayoutOf("[64, 8] sum<dp>", "{dp:4,tp:2}");
  const Layout target = LayoutOf("[64, <r>8]", "{r:2}@8");
  const std::vector<Chain> chains = CrossOnceChains(source, target, Within);
  REQUIRE_FALSE(chains.empty());
  for (const Chain& chain : chains) {
    INFO(testing::Text(source, chain));
    CHECK(WrongWith(source, target, chain) == "");
    CHECK(Crossing(source, chain) == 64 * 8);
  }
}

TEST_CASE("between disjoint meshes some chain carries every byte across once, and none fewer") {
  const uint64_t seed = testing::Seed();
  std::mt19937_64 random(seed);
  int seen = 0;
  for (int i = 0; i < 200; ++i) {
    const std::vector<testing::Axis> from_axes = {{"X", 2 + 2 * (i % 2)}, {"Y", 2 + i % 2}},
                                     to_axes = {{"P", 3}, {"Q", 2}};
    const std::vector<int64_t> shape = testing::RandomShape(random, random() % 4 == 0);
    const Layout source = LayoutOf(testing::RandomLayout(random, from_axes, shape), testing::MeshText(from_axes));
    const Layout target = LayoutOf(testing::RandomLayout(random, to_axes, shape), testing::MeshText(to_axes, 12));
    const std::vector<Chain> chains = CrossOnceChains(source, target, Within);
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const Chain& chain : chains) {
      INFO("seed " << seed << ", " << i << ": " << testing::Text(source, chain));
      REQUIRE(WrongWith(source, target, chain) == "");
      least = std::min(least, Crossing(source, chain));
    }
    if (chains.empty()) continue;
    INFO("seed " << seed << ", " << i << ": " << ToString(source) << " -> " << ToString(target));
    REQUIRE(least == Missing(source, target));
    ++seen;
  }
  CHECK(seen > 100);
}

}  // namespace reshard
