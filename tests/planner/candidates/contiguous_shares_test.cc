// Exchanges in which the devices of a domain share what it holds by contiguous parts.
#include "planner/candidates/contiguous_shares.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "planner/cost/price.h"
#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/planner/candidates/chains.h"
#include "tests/property.h"
#include "tests/sanitized.h"

namespace reshard {
namespace {

using candidates::ContiguousShareChains;
using candidates::ShareChain;
using testing::Axis;
using testing::LayoutOf;
using testing::LocalityDomains;
using testing::MeshText;
using testing::On;
using testing::WrongWith;

std::vector<ShareChain> Chains(const Layout& from, const Layout& to, const Topology& topology) {
  transfers::ShardMaps maps({from, to});
  return ContiguousShareChains(from, to, DType::kI8, topology, maps);
}

int64_t PeersAcross(const std::vector<Step>& steps) {
  int64_t most = 0;
  for (const Step& step : steps) most = std::max(most, step.levels.back().peers_max);
  return most;
}

TEST_CASE("a device meets the domains that its share concerns") {
  const Layout from = LayoutOf("[<a>8192, 8192]", "{a:1024}"), to = LayoutOf("[8192, <a>8192]", "{a:1024}");
  const Topology topology = LocalityDomains(8);
  const auto chains = Chains(from, to, topology);
  REQUIRE(!chains.empty());
  CHECK(testing::Text(from, chains[0].chain) ==
        testing::Text(from, {{cost::ChainStep::Kind::kMove, LayoutOf("[<a:(1)128>8192, <a:(128)8>8192]", "{a:1024}")},
                             {cost::ChainStep::Kind::kMove, LayoutOf("[<a:(128)8>8192, <a:(1)128>8192]", "{a:1024}")},
                             {cost::ChainStep::Kind::kMove, to}}));
  CHECK(PeersAcross(cost::Price(from, chains[0].chain, DType::kI8, On(topology))->steps) == 16);
  CHECK(PeersAcross(cost::Price(from, {{cost::ChainStep::Kind::kMove, to}}, DType::kI8, On(topology))->steps) == 1016);
}

TEST_CASE("domains that are to hold the same share it, and gather it afterwards") {
  const std::string mesh = "{a:64,b:2,c:8}";
  const Layout from = LayoutOf("[<b>8192, 8192]", mesh), to = LayoutOf("[8192, <a>8192]", mesh);
  const std::string end = testing::Text(
      LayoutOf("[<c,b>8192, <a>8192]", mesh),
      {{cost::ChainStep::Kind::kMove, LayoutOf("[<c>8192, <a>8192]", mesh)}, {cost::ChainStep::Kind::kMove, to}});
  const auto chains = Chains(from, to, LocalityDomains(8));
  const auto ends_so = [&](const ShareChain& one) {
    const std::string text = testing::Text(from, one.chain);
    return one.replicas_gather && text.size() > end.size() && text.substr(text.size() - end.size()) == end;
  };
  CHECK(std::any_of(chains.begin(), chains.end(), ends_so));
}

TEST_CASE("chains by contiguous shares are plans, the estimated fastest first") {
  const uint64_t seed = testing::Seed();
  std::mt19937_64 random(seed);
  int seen = 0;
  constexpr int kProblems = testing::kSanitized ? 30 : 150;
  for (int i = 0; i < kProblems; ++i) {
    const std::vector<Axis> axes = {{"N", 2 + i % 3}, {"X", 2 + i % 2}, {"Y", 1 + i % 2}};
    const Topology topology = LocalityDomains(axes[1].size * axes[2].size);
    const std::vector<int64_t> shape = testing::RandomShape(random, i % 2 == 0);
    const Layout from = LayoutOf(testing::RandomLayout(random, axes, shape, {.blocks = true}), MeshText(axes));
    const Layout to = LayoutOf(testing::RandomLayout(random, axes, shape, {.blocks = true}), MeshText(axes));
    INFO("seed " << seed << ", " << i << ": " << ToString(from.mesh()) << " " << ToString(from) << " -> "
                 << ToString(to));
    if (*Equivalent(from, to)) continue;
    const auto chains = Chains(from, to, topology);
    const auto gathering =
        std::count_if(chains.begin(), chains.end(), [](const auto& one) { return one.replicas_gather; });
    REQUIRE(gathering <= 4);
    REQUIRE(static_cast<std::ptrdiff_t>(chains.size()) - gathering <= 4);
    int64_t before = 0;
    for (const ShareChain& one : chains) {
      INFO(testing::Text(from, one.chain));
      REQUIRE(one.time_ns >= before);
      before = one.time_ns;
      REQUIRE(WrongWith(from, to, one.chain, On(topology)) == "");
      ++seen;
    }
  }
  CHECK(seen > kProblems);
}

TEST_CASE("no contiguous shares where they mean nothing") {
  const Layout source = LayoutOf("[<N>64, 8]", "{N:2,X:4}"), target = LayoutOf("[64, <N>8]", "{N:2,X:4}");
  CHECK(!Chains(source, target, LocalityDomains(4)).empty());
  CHECK(Chains(source, target, Topology::Flat()).empty());
  CHECK(Chains(source, LayoutOf("[64, <N>8]", "{N:2,X:4}@8"), LocalityDomains(4)).empty());
  CHECK(Chains(LayoutOf("[64, 8] sum<N>", "{N:2,X:4}"), target, LocalityDomains(4)).empty());
}

TEST_CASE("a plan takes them where time is mostly latencies") {
  PlanOptions options;
  options.topology = *Topology::Preset("dgx-h100");
  // Columns that a node needs come from 64 others: each of its devices asks eight of these.
  const Layout from = LayoutOf("[<b>65536, <c,a>65536]", "{a:128,b:64,c:4,d:2}");
  const Layout to = LayoutOf("[65536, <a,b>65536]", "{a:128,b:64,c:4,d:2}");
  const auto plan = MakePlan({from, to, DType::kBF16}, options);
  REQUIRE(plan.ok());
  CHECK(PeersAcross(plan->steps) < 32);
  CHECK(plan->totals.levels.back().nic_bytes_max < 4 * plan->bounds.levels.back().nic_recv_bytes_max);
}

TEST_CASE("stages of sizes that do not divide keep their borders") {
  PlanOptions options;
  options.topology = *Topology::Preset("dgx-h100");
  // 4,096 parts of 13 columns: nodes of 8 have 104 each, and no layout of 512 nodes does.
  const auto plan = MakePlan(
      {LayoutOf("[65521, <a>50000]", "{a:4096}"), LayoutOf("[<a>65521, 50000]", "{a:4096}"), DType::kBF16}, options);
  REQUIRE(plan.ok());
  // Stages of 8 nodes; where source and target have other borders, a device meets twice as many.
  CHECK(PeersAcross(plan->steps) <= 16);
}

}  // namespace
}  // namespace reshard
