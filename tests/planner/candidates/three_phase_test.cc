// Chains for networks with fast islands: within them, across them, within them again.
#include "planner/candidates/three_phase.h"

#include <algorithm>
#include <limits>
#include <map>

#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/oracle/holdings.h"
#include "tests/planner/candidates/chains.h"
#include "tests/sanitized.h"

namespace reshard {
namespace {

using candidates::ThreePhaseChains;
using testing::Chain;
using testing::Islands;
using testing::LayoutOf;
using testing::On;
using testing::WrongWith;

// Elements that islands need and none of their devices holds, over all islands.
int64_t IslandsLack(const Layout& source, const Layout& target, int64_t devices) {
  const auto holdings = [](const Layout& layout) {
    return oracle::Holdings(oracle::ParseLayout(ToString(layout), oracle::ParseMesh(ToString(layout.mesh()))));
  };
  const oracle::Holdings from = holdings(source), to = holdings(target);
  std::map<int64_t, std::pair<oracle::ElementSet, oracle::ElementSet>> islands;  // held, needed
  for (size_t p = 0; p < from.sets.size(); ++p) {
    auto& [held, needed] = islands
                               .try_emplace(from.layout.mesh.ids[p] / devices, oracle::ElementSet(from.elements),
                                            oracle::ElementSet(from.elements))
                               .first->second;
    held.Merge(from.sets[p]);
    needed.Merge(to.sets[p]);
  }
  int64_t lack = 0;
  for (const auto& [island, sets] : islands) lack += sets.second.Count() - sets.second.CountCommon(sets.first);
  return lack;
}

// The least over the chains of what crosses islands in all.
int64_t LeastAcross(const Layout& source, const Layout& target, const std::vector<Chain>& chains,
                    const Topology& topology) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const Chain& chain : chains) {
    const Plan plan = testing::PlanOf(source, target, chain, On(topology));
    least = std::min(least, plan.totals.levels.back().recv_bytes_total);
  }
  return least;
}

}  // namespace

TEST_CASE("what an island's replicas would all fetch is fetched once") {
  // Directly, every device of an island fetches the half that its island lacks: four times as much.
  const Layout source = LayoutOf("[<N>64, 8]", "{N:2,X:4}");
  const Layout target = LayoutOf("[64, 8]", "{N:2,X:4}");
  const std::vector<Chain> chains = ThreePhaseChains(source, target, Islands(4));
  REQUIRE_FALSE(chains.empty());
  CHECK(chains.size() <= 12);
  for (const Chain& chain : chains) {
    INFO(testing::Text(source, chain));
    CHECK(WrongWith(source, target, chain, On(Islands(4))) == "");
  }
  CHECK(LeastAcross(source, target, chains, Islands(4)) == 2 * 32 * 8);
  const Chain direct = {{cost::Hop::Kind::kMove, target}};
  CHECK(testing::PlanOf(source, target, direct, On(Islands(4))).totals.levels.back().recv_bytes_total == 8 * 32 * 8);
}

TEST_CASE("no chains where phases mean nothing") {
  const Layout source = LayoutOf("[<N>64, 8]", "{N:2,X:4}");
  const Layout target = LayoutOf("[64, 8]", "{N:2,X:4}");
  SECTION("one level") { CHECK(ThreePhaseChains(source, target, Topology::Flat()).empty()); }
  SECTION("all devices on one island") { CHECK(ThreePhaseChains(source, target, Islands(8)).empty()); }
  SECTION("nothing crosses islands") {
    CHECK(ThreePhaseChains(LayoutOf("[<N,X>64, 8]", "{N:2,X:4}"), source, Islands(4)).empty());
  }
  SECTION("islands that are no sub-meshes") {
    CHECK(ThreePhaseChains(LayoutOf("[<N>64, 8]", "{N:2,X:4}@2"), LayoutOf("[64, 8]", "{N:2,X:4}@2"), Islands(4))
              .empty());
    CHECK(ThreePhaseChains(LayoutOf("[<N>60, 8]", "{N:2,X:3}"), LayoutOf("[60, 8]", "{N:2,X:3}"), Islands(4)).empty());
  }
  SECTION("uneven cuts") {
    CHECK(
        ThreePhaseChains(LayoutOf("[<N,X>63, 8]", "{N:2,X:4}"), LayoutOf("[63, 8]", "{N:2,X:4}"), Islands(4)).empty());
  }
}

TEST_CASE("chains in phases are plans, and the best of them carries the least across islands") {
  const uint64_t seed = testing::Seed();
  std::mt19937_64 random(seed);
  int seen = 0;
  constexpr int kProblems = testing::kSanitized ? 50 : 150;
  for (int i = 0; i < kProblems; ++i) {
    const std::vector<testing::Axis> axes = {{"N", 2}, {"M", 2 - i % 2}, {"X", 2 + 2 * (i % 3 == 0)}, {"Y", 2}};
    const int64_t island = axes[2].size * axes[3].size;
    // Room for every digit in either dimension: what finds no place stays replicated, and is fetched more than once.
    const std::vector<int64_t> shape = {64, 96};
    const Layout source = LayoutOf(testing::RandomLayout(random, axes, shape), testing::MeshText(axes));
    const Layout target = LayoutOf(testing::RandomLayout(random, axes, shape), testing::MeshText(axes));
    const Topology topology = Islands(island);
    const std::vector<Chain> chains = ThreePhaseChains(source, target, topology);
    INFO("seed " << seed << ", " << i << ": " << ToString(source.mesh()) << " " << ToString(source) << " -> "
                 << ToString(target));
    REQUIRE(chains.size() <= 12);
    const int64_t lack = IslandsLack(source, target, island);
    for (const Chain& chain : chains) {
      INFO(testing::Text(source, chain));
      REQUIRE(WrongWith(source, target, chain, On(topology)) == "");
    }
    if (chains.empty()) continue;
    REQUIRE(LeastAcross(source, target, chains, topology) == lack);
    ++seen;
  }
  CHECK(seen > kProblems / 3);
}

TEST_CASE("chains that reduce in phases are plans") {
  const uint64_t seed = testing::Seed();
  std::mt19937_64 random(seed);
  int seen = 0;
  for (int i = 0; i < 120; ++i) {
    const std::vector<testing::Axis> axes = {{"N", 2}, {"X", 2 + 2 * (i % 2)}, {"Y", 2}};
    const Topology topology = Islands(axes[1].size * axes[2].size);
    const Layout source =
        LayoutOf(testing::RandomLayout(random, axes, {16, 48}, {.pending = true}), testing::MeshText(axes));
    const Layout target = LayoutOf(testing::RandomLayout(random, axes, {16, 48}), testing::MeshText(axes));
    for (const Chain& chain : ThreePhaseChains(source, target, topology)) {
      INFO("seed " << seed << ", " << i << ": " << testing::Text(source, chain));
      REQUIRE(WrongWith(source, target, chain, On(topology)) == "");
      ++seen;
    }
  }
  CHECK(seen > 100);
}

}  // namespace reshard
