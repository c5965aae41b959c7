// Chains for networks with fast domains: within them, across them, within them again.
#include "planner/candidates/three_phase.h"

#include <algorithm>
#include <limits>
#include <map>

#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/oracle_of.h"
#include "tests/planner/candidates/chains.h"
#include "tests/sanitized.h"

namespace reshard {
namespace {

using candidates::ThreePhaseChains;
using testing::Chain;
using testing::HoldingsOf;
using testing::LayoutOf;
using testing::LocalityDomains;
using testing::On;
using testing::WrongWith;

// Elements that domains need and none of their devices holds, over all domains.
int64_t DomainsLack(const Layout& source, const Layout& target, int64_t devices) {
  const oracle::Holdings from = HoldingsOf(source), to = HoldingsOf(target);
  std::map<int64_t, std::pair<oracle::ElementSet, oracle::ElementSet>> domains;  // held, needed
  for (size_t p = 0; p < from.sets.size(); ++p) {
    auto& [held, needed] = domains
                               .try_emplace(from.layout.mesh.ids[p] / devices, oracle::ElementSet(from.elements),
                                            oracle::ElementSet(from.elements))
                               .first->second;
    held.Merge(from.sets[p]);
    needed.Merge(to.sets[p]);
  }
  int64_t lack = 0;
  for (const auto& [domain, sets] : domains) lack += sets.second.Count() - sets.second.CountCommon(sets.first);
  return lack;
}

// The least over the chains of what crosses domains in all.
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

TEST_CASE("what a domain's replicas would all fetch is fetched once") {
  // Directly, every device of a domain fetches the half that its domain lacks: four times as much.
  const Layout source = LayoutOf("[<N>64, 8]", "{N:2,X:4}");
  const Layout target = LayoutOf("[64, 8]", "{N:2,X:4}");
  const std::vector<Chain> chains = ThreePhaseChains(source, target, LocalityDomains(4));
  REQUIRE_FALSE(chains.empty());
  CHECK(chains.size() <= 12);
  for (const Chain& chain : chains) {
    INFO(testing::Text(source, chain));
    CHECK(WrongWith(source, target, chain, On(LocalityDomains(4))) == "");
  }
  CHECK(LeastAcross(source, target, chains, LocalityDomains(4)) == 2 * 32 * 8);
  const Chain direct = {{cost::ChainStep::Kind::kMove, target}};
  CHECK(testing::PlanOf(source, target, direct, On(LocalityDomains(4))).totals.levels.back().recv_bytes_total ==
        8 * 32 * 8);
}

TEST_CASE("no chains where phases mean nothing") {
  const Layout source = LayoutOf("[<N>64, 8]", "{N:2,X:4}");
  const Layout target = LayoutOf("[64, 8]", "{N:2,X:4}");
  SECTION("one level") { CHECK(ThreePhaseChains(source, target, Topology::Flat()).empty()); }
  SECTION("all devices on one domain") { CHECK(ThreePhaseChains(source, target, LocalityDomains(8)).empty()); }
  SECTION("nothing crosses domains") {
    CHECK(ThreePhaseChains(LayoutOf("[<N,X>64, 8]", "{N:2,X:4}"), source, LocalityDomains(4)).empty());
  }
  SECTION("domains that are not sub-meshes") {
    CHECK(
        ThreePhaseChains(LayoutOf("[<N>64, 8]", "{N:2,X:4}@2"), LayoutOf("[64, 8]", "{N:2,X:4}@2"), LocalityDomains(4))
            .empty());
    CHECK(ThreePhaseChains(LayoutOf("[<N>60, 8]", "{N:2,X:3}"), LayoutOf("[60, 8]", "{N:2,X:3}"), LocalityDomains(4))
              .empty());
  }
  SECTION("uneven cuts") {
    CHECK(ThreePhaseChains(LayoutOf("[<N,X>63, 8]", "{N:2,X:4}"), LayoutOf("[63, 8]", "{N:2,X:4}"), LocalityDomains(4))
              .empty());
  }
}

TEST_CASE("chains in phases are plans, and the best of them carries the least across domains") {
  const uint64_t seed = testing::Seed();
  std::mt19937_64 random(seed);
  int seen = 0;
  constexpr int kProblems = testing::kSanitized ? 20 : 150;
  for (int i = 0; i < kProblems; ++i) {
    const std::vector<testing::Axis> axes = {{"N", 2}, {"M", 2 - i % 2}, {"X", 2 + 2 * (i % 3 == 0)}, {"Y", 2}};
    const int64_t domain = axes[2].size * axes[3].size;
    // Room for every digit in either dimension: what finds no place stays replicated, and is fetched more than once.
    const std::vector<int64_t> shape = {64, 96};
    const Layout source = LayoutOf(testing::RandomLayout(random, axes, shape), testing::MeshText(axes));
    const Layout target = LayoutOf(testing::RandomLayout(random, axes, shape), testing::MeshText(axes));
    const Topology topology = LocalityDomains(domain);
    const std::vector<Chain> chains = ThreePhaseChains(source, target, topology);
    INFO("seed " << seed << ", " << i << ": " << ToString(source.mesh()) << " " << ToString(source) << " -> "
                 << ToString(target));
    REQUIRE(chains.size() <= 12);
    const int64_t lack = DomainsLack(source, target, domain);
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
    const Topology topology = LocalityDomains(axes[1].size * axes[2].size);
    const Layout source =
        LayoutOf(testing::RandomLayout(random, axes, {16, 48}, {.partial = true}), testing::MeshText(axes));
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
