// Chains for what the digit model does not cover: ways to reduce, and movement over joined factors.
#include "planner/candidates/fallback.h"

#include <algorithm>
#include <set>

#include "reshard/layout/shard_map.h"
#include "reshard/planner/planner.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/planner/candidates/chains.h"
#include "tests/sanitized.h"

namespace reshard {
namespace {

using candidates::IsBox;
using candidates::MovementChain;
using candidates::ReductionChains;
using testing::Chain;
using testing::LayoutOf;
using testing::RandomLayout;
using testing::RandomShape;
using testing::WrongWith;

std::multiset<std::string> OpsOf(const Layout& source, const Layout& target, const Chain& chain) {
  std::multiset<std::string> ops;
  for (const Step& step : testing::PlanOf(source, target, chain).steps) ops.insert(std::string(Name(step.op)));
  return ops;
}

}  // namespace

TEST_CASE("boxes are what no block is cut into parts of") {
  for (const char* box : {"[64, 64]", "[<X>64, <Y>64]", "[<X,Y>64, 64]", "[<X,2>64, 64]", "[<~X>64, 64]",
                          "[<X=[60,4,0,0]>64, 64]", "[<1,X>64, 64]"}) {
    INFO(box);
    CHECK(IsBox(LayoutOf(box, "{X:4,Y:2}")));
  }
  for (const char* blocks : {"[<2,X>64, 64]", "[64, <X,2,Y>64]", "[<2,~X>64, 64]"}) {
    INFO(blocks);
    CHECK_FALSE(IsBox(LayoutOf(blocks, "{X:4,Y:2}")));
  }
}

TEST_CASE("a partial sum is reduced in place, along every dimension, and after slicing") {
  const Layout source = LayoutOf("[16, 8] sum<X>", "{X:4,Y:2}");
  const Layout target = LayoutOf("[16, 8]", "{X:4,Y:2}");
  const std::vector<Chain> chains = ReductionChains(source, target);
  std::set<std::multiset<std::string>> kinds;
  for (const Chain& chain : chains) {
    INFO(testing::Text(source, chain));
    CHECK(WrongWith(source, target, chain) == "");
    kinds.insert(OpsOf(source, target, chain));
  }
  // All-reduce; then for either dimension a reduce-scatter, and a slice along Y before it.
  CHECK(chains.size() == 5);
  CHECK(kinds == std::set<std::multiset<std::string>>{
                     {"AllReduce"}, {"ReduceScatter", "AllGather"}, {"Slice", "ReduceScatter", "AllGather"}});
}

TEST_CASE("a reduce-scatter that ends at the target needs no further step") {
  const Layout source = LayoutOf("[16] sum<X>", "{X:4}");
  const Layout target = LayoutOf("[<X>16]", "{X:4}");
  const std::vector<Chain> chains = ReductionChains(source, target);
  const auto direct = std::find_if(chains.begin(), chains.end(), [](const Chain& chain) { return chain.size() == 1; });
  REQUIRE(direct != chains.end());
  CHECK(direct->front().kind == cost::ChainStep::Kind::kReduceScatter);
}

TEST_CASE("nothing to reduce, no chains") {
  CHECK(ReductionChains(LayoutOf("[<X>16]", "{X:4}"), LayoutOf("[16]", "{X:4}")).empty());
  CHECK(ReductionChains(LayoutOf("[16] sum<X>", "{X:4}"), LayoutOf("[16] sum<X>", "{X:4}")).empty());
  // What one device alone contributes to is a sum already.
  CHECK(ReductionChains(LayoutOf("[16] sum<X>", "{X:1,Y:4}"), LayoutOf("[<Y>16]", "{X:1,Y:4}")).empty());
}

TEST_CASE("every chain that reduces is a plan, whatever stays partial and wherever it goes") {
  const uint64_t seed = testing::Seed();
  std::mt19937_64 random(seed);
  int chains_seen = 0;
  constexpr int kProblems = testing::kSanitized ? 60 : 200;
  for (int i = 0; i < kProblems; ++i) {
    const std::vector<testing::Axis> axes = {{"X", i % 2 == 0 ? 4 : 3}, {"Y", 2}, {"Z", 2}};
    const std::vector<int64_t> shape = RandomShape(random, random() % 3 == 0);
    const std::string mesh = testing::MeshText(axes);
    const std::string to_mesh = testing::MeshText(axes, i % 5 == 0 ? 6 : 0);
    const Layout source = LayoutOf(RandomLayout(random, axes, shape, {.partial = true}), mesh);
    const Layout target = LayoutOf(RandomLayout(random, axes, shape), to_mesh);
    for (const Chain& chain : ReductionChains(source, target)) {
      INFO("seed " << seed << ", " << i << ": " << testing::Text(source, chain));
      // The header promises ways, not that each keeps within both ends: that is judged when they are priced.
      REQUIRE(chain.back().to == target);
      const Plan plan = testing::PlanOf(source, target, chain);
      if (plan.totals.intermediate_bytes_max > plan.bounds.intermediate_bytes_max) continue;
      REQUIRE(WrongWith(source, target, chain) == "");
      ++chains_seen;
    }
  }
  CHECK(chains_seen > kProblems);
}

TEST_CASE("movement over joined factors is a chain of allowed steps, or none") {
  const uint64_t seed = testing::Seed();
  std::mt19937_64 random(seed);
  PlanOptions options;
  options.ops = options.ops.without(Op::kExchange);
  int found = 0;
  for (int i = 0; i < 150; ++i) {
    const std::vector<testing::Axis> axes = {{"X", 2 + i % 3}, {"Y", 2}};
    const std::vector<int64_t> shape = RandomShape(random, random() % 2 == 0);
    const Layout source = LayoutOf(RandomLayout(random, axes, shape), testing::MeshText(axes));
    const Layout target = LayoutOf(RandomLayout(random, axes, shape), testing::MeshText(axes));
    options.boxes_only = random() % 2 == 0;
    options.objective = std::vector<Objective>{Objective::kTime, Objective::kBytes, Objective::kSteps}[random() % 3];
    if (*Equivalent(source, target)) continue;  // no steps at all
    const Chain chain = MovementChain(source, target, DType::kI8, options);
    if (chain.empty()) continue;
    INFO("seed " << seed << ", " << i << ": " << testing::Text(source, chain));
    REQUIRE(WrongWith(source, target, chain, options) == "");
    for (const Step& step : testing::PlanOf(source, target, chain, options).steps) {
      REQUIRE(options.ops.contains(step.op));
      if (options.boxes_only && !(step.to == target)) REQUIRE(IsBox(step.to));
    }
    ++found;
  }
  CHECK(found > 75);
}

TEST_CASE("movement over joined factors knows one mesh") {
  CHECK(MovementChain(LayoutOf("[<X>16]", "{X:4}"), LayoutOf("[16]", "{X:4}@4"), DType::kI8, {}).empty());
}

TEST_CASE("where sizes do not divide, two steps with few peers are found beside one with many") {
  const Layout source = LayoutOf("[8, <Y,X>8, 8]", "{X:2,Y:3}"), target = LayoutOf("[8, 8, <X>8]", "{X:2,Y:3}");
  PlanOptions options;
  const auto fastest = MakePlan({source, target, DType::kI8}, options);
  REQUIRE(fastest.ok());
  CHECK(fastest->steps.size() == 2);
  const int64_t time = fastest->totals.time_ns;
  options.ops = options.ops.without(Op::kExchange);
  const auto named = MakePlan({source, target, DType::kI8}, options);
  REQUIRE(named.ok());
  CHECK(time <= named->totals.time_ns);
  // A chain that is no better than what is known is none.
  options = {};
  CHECK(!MovementChain(source, target, DType::kI8, options, time + 1).empty());
  CHECK(MovementChain(source, target, DType::kI8, options, time).empty());
  // By bytes nothing beats the direct exchange.
  options.objective = Objective::kBytes;
  const auto fewest = MakePlan({source, target, DType::kI8}, options);
  REQUIRE(fewest.ok());
  CHECK(fewest->steps.size() == 1);
}

}  // namespace reshard
