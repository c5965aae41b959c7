// Chains in three phases where cuts are uneven, coprime, explicit or reflected.
#include "planner/candidates/uneven_phases.h"

#include "planner/cost/price.h"
#include "reshard/planner/planner.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/planner/candidates/chains.h"
#include "tests/sanitized.h"

namespace reshard {
namespace {

using candidates::UnevenPhaseChains;
using testing::Chain;
using testing::LayoutOf;
using testing::LocalityDomains;
using testing::On;
using testing::WrongWith;

int64_t Across(const Layout& source, const Layout& target, const Chain& chain, const Topology& topology) {
  return testing::PlanOf(source, target, chain, On(topology)).totals.levels.back().nic_bytes_max;
}

}  // namespace

TEST_CASE("uneven pairs cross between domains once, in equal shares") {
  struct Pair {
    const char* mesh;
    int64_t domain;
    const char* from;
    const char* to;
    const char* target_mesh = "";  // the same
  };
  const Pair pairs[] = {
      {"{N:2,X:4}", 4, "[<X>1301, <N>1103]", "[<N>1301, 1103]"},
      {"{N:2,X:4}", 4, "[<X,N>1301, 1103]", "[<N>1301, 1103]"},
      {"{N:2,X:4}", 4, "[<N>1301, <X>1103]", "[1301, <N>1103]"},
      {"{N:2,X:4}", 4, "[1301, <N,X>1103]", "[1301, 1103]"},
      {"{N:2,X:4}", 4, "[<N>130, 110]", "[130, <N>110]"},  // even between domains, not within them
      {"{N:3,X:5}", 5, "[<X>50257, <N>4097]", "[<N>50257, 4097]"},
      {"{N:4,X:8}", 8, "[50257, <N>4097]", "[50257, 4097]"},
      {"{N:2,X:2,Y:3}", 6, "[<X,N>1301, <Y>1103]", "[<N,Y>1301, 1103]"},
      {"{N:2,X:4}", 4, "[<N=[800,501]>1301, <X>1103]", "[1301, <N>1103]"},
      {"{N:2,X:4}", 4, "[<N>1301, 1103]", "[<2,~N>1301, 1103]"},
      {"{N:2,X:4}", 4, "[<N>10007]", "[10007]"},
      {"{N:2,X:4}", 4, "[<X>1301, <N>1103]", "[<M>1301, <Z>1103]", "{M:2,Y:2,Z:2}"},
      {"{N:2,X:4}", 4, "[<X>1024, <N>1024]", "[<M>1024, 1024]", "{M:2,Y:2,Z:2}"},
  };
  for (const Pair& pair : pairs) {
    INFO(pair.mesh << " " << pair.from << " -> " << pair.to);
    const Layout source = LayoutOf(pair.from, pair.mesh);
    const Layout target = LayoutOf(pair.to, *pair.target_mesh == 0 ? pair.mesh : pair.target_mesh);
    PlanOptions options = On(LocalityDomains(pair.domain));
    options.objective = Objective::kBytes;
    const absl::StatusOr<Plan> plan = MakePlan({source, target, DType::kF32}, options);
    REQUIRE(plan.ok());
    REQUIRE(plan->bounds.levels.size() == 2);
    const int64_t bound = plan->bounds.levels[1].nic_recv_bytes_max;
    const int64_t across = plan->totals.levels[1].nic_bytes_max;
    INFO(across << " bytes through the busiest link, at least " << bound);
    CHECK(across * 100 <= bound * 105);
    CHECK(plan->totals.intermediate_bytes_max == plan->bounds.intermediate_bytes_max);
  }
}

TEST_CASE("chains in uneven phases are plans, and cross less than the direct move") {
  const uint64_t seed = testing::Seed();
  std::mt19937_64 random(seed);
  int seen = 0;
  constexpr int kProblems = testing::kSanitized ? 30 : 120;
  for (int i = 0; i < kProblems; ++i) {
    const std::vector<testing::Axis> axes = {{"N", 2 + i % 2}, {"X", 2 + i % 3}, {"Y", 1 + i % 2}};
    const int64_t domain = axes[1].size * axes[2].size;
    const Topology topology = LocalityDomains(domain);
    const std::vector<int64_t> shape = i % 4 == 0 ? std::vector<int64_t>{101} : std::vector<int64_t>{37, 23};
    const Layout source =
        LayoutOf(testing::RandomLayout(random, axes, shape, {.blocks = true}), testing::MeshText(axes));
    // Every third over the same devices as another mesh.
    std::vector<testing::Axis> other = axes;
    if (i % 3 == 2) std::swap(other[0].size, other[1].size);
    const Layout target =
        LayoutOf(testing::RandomLayout(random, other, shape, {.blocks = true}), testing::MeshText(other));
    transfers::ShardMaps maps({source, target});
    const std::vector<Chain> chains = UnevenPhaseChains(source, target, DType::kI8, topology, 0, maps);
    INFO("seed " << seed << ", " << i << ": " << ToString(source.mesh()) << " " << ToString(source) << " -> "
                 << ToString(target));
    REQUIRE(chains.size() <= 4);
    const int64_t direct = Across(source, target, {{cost::ChainStep::Kind::kMove, target}}, topology);
    for (const Chain& chain : chains) {
      INFO(testing::Text(source, chain));
      REQUIRE(WrongWith(source, target, chain, On(topology)) == "");
      REQUIRE(Across(source, target, chain, topology) < direct);
      ++seen;
    }
  }
  CHECK(seen > kProblems / 3);
}

TEST_CASE("no uneven phases where they mean nothing") {
  const Layout source = LayoutOf("[<N>63, 8]", "{N:2,X:4}");
  const Layout target = LayoutOf("[63, 8]", "{N:2,X:4}");
  const auto chains = [](const Layout& from, const Layout& to, const Topology& topology) {
    transfers::ShardMaps maps({from, to});
    return UnevenPhaseChains(from, to, DType::kF32, topology, 0, maps).size();
  };
  CHECK(chains(source, target, LocalityDomains(4)) > 0);
  CHECK(chains(source, target, Topology::Flat()) == 0);
  CHECK(chains(source, target, LocalityDomains(8)) == 0);
  CHECK(chains(LayoutOf("[<N,X>63, 8]", "{N:2,X:4}"), source, LocalityDomains(4)) == 0);
  CHECK(chains(LayoutOf("[<N>63, 8]", "{N:2,X:4}@2"), LayoutOf("[63, 8]", "{N:2,X:4}@2"), LocalityDomains(4)) == 0);
  CHECK(chains(LayoutOf("[63, 8] sum<N>", "{N:2,X:4}"), target, LocalityDomains(4)) == 0);
}

}  // namespace reshard
