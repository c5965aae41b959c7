// The search for sequences by itself: against the shortest paths of the oracle, and its promises about bounds and
// budgets. What plans make of it: tests/property/sequences_test.cc.
#include "planner/candidates/sequence/sequence.h"

#include <optional>

#include "reshard/layout/shard_map.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/oracle/exhaustive.h"
#include "tests/planner/candidates/chains.h"

namespace reshard {
namespace {

using digits::DigitModel;
using sequence::SearchSequence;
using sequence::SequenceResult;
using testing::LayoutOf;
using testing::WrongWith;

constexpr int64_t kEnough = 1'000'000;

PlanOptions Bytes(bool boxes_only = false) {
  PlanOptions options;
  options.objective = Objective::kBytes;
  options.ops = options.ops.without(Op::kExchange);
  options.boxes_only = boxes_only;
  return options;
}

DigitModel ModelOf(const Layout& source, const Layout& target, bool boxes = false) {
  std::optional<DigitModel> model = DigitModel::Create(source, target, boxes);
  REQUIRE(model.has_value());
  return *model;
}

// What only sequences cheaper than this are to be found for: their objective alone.
cost::Cost Below(int64_t objective) { return {objective, 0, 0, 0, 0, 0, 0}; }

}  // namespace

TEST_CASE("sequences cost what the oracle's shortest paths cost") {
  const oracle::Exhaustive all(3, 2, 8, false);
  const uint64_t seed = testing::Seed();
  std::mt19937_64 random(seed);
  int longer = 0;
  for (int i = 0; i < 400; ++i) {
    const size_t s = random() % all.states().size(), t = random() % all.states().size();
    const Layout source = LayoutOf(all.states()[s].layout, all.mesh());
    const Layout target = LayoutOf(all.states()[t].layout, all.mesh());
    if (*Equivalent(source, target)) continue;
    INFO("seed " << seed << ", " << i << ": " << ToString(source) << " -> " << ToString(target));
    const SequenceResult result = SearchSequence(ModelOf(source, target), DType::kI8, Bytes(), std::nullopt, kEnough);
    REQUIRE(result.found);
    CHECK(result.exhausted);
    CHECK(result.objective == all.Optimum(s, t));
    CHECK(result.lower_bound == result.objective);
    REQUIRE(WrongWith(source, target, result.steps, Bytes()) == "");
    longer += result.steps.size() > 1 ? 1 : 0;
  }
  CHECK(longer > 50);
}

TEST_CASE("only sequences cheaper than what is known are looked for") {
  const Layout source = LayoutOf("[<X>64, <Y>64]", "{X:4,Y:2}");
  const Layout target = LayoutOf("[<Y>64, <X>64]", "{X:4,Y:2}");
  const DigitModel model = ModelOf(source, target);
  const SequenceResult best = SearchSequence(model, DType::kI8, Bytes(), std::nullopt, kEnough);
  REQUIRE(best.found);
  const SequenceResult none = SearchSequence(model, DType::kI8, Bytes(), Below(best.objective), kEnough);
  CHECK_FALSE(none.found);
  CHECK(none.steps.empty());
  CHECK(none.exhausted);
  const SequenceResult again = SearchSequence(model, DType::kI8, Bytes(), Below(best.objective + 1), kEnough);
  CHECK(again.found);
  CHECK(again.objective == best.objective);
}

TEST_CASE("a search that ends early does not claim the best") {
  const Layout source = LayoutOf("[<A,B>64, <C,D>64]", "{A:2,B:2,C:2,D:2}");
  const Layout target = LayoutOf("[<D,C>64, <B,A>64]", "{A:2,B:2,C:2,D:2}");
  PlanOptions options = Bytes();
  options.ops = options.ops.without(Op::kAllPermute);
  const DigitModel model = ModelOf(source, target);
  const SequenceResult best = SearchSequence(model, DType::kI8, options, std::nullopt, kEnough);
  REQUIRE(best.found);
  REQUIRE(best.exhausted);
  for (const int64_t budget : {1, 10, 100, 1000}) {
    INFO(budget);
    const SequenceResult early = SearchSequence(model, DType::kI8, options, std::nullopt, budget);
    if (!early.exhausted) CHECK(early.lower_bound <= best.objective);
    if (!early.found) continue;
    CHECK(early.objective >= best.objective);
    CHECK(early.lower_bound <= early.objective);
    CHECK(WrongWith(source, target, early.steps, options) == "");
  }
  CHECK_FALSE(SearchSequence(model, DType::kI8, options, std::nullopt, 1).exhausted);
}

TEST_CASE("only allowed ops, only boxes") {
  const uint64_t seed = testing::Seed();
  std::mt19937_64 random(seed);
  const std::vector<Op> movers = {Op::kSlice, Op::kAllGather, Op::kAllToAll, Op::kAllPermute};
  int found = 0;
  for (int i = 0; i < 200; ++i) {
    const std::vector<testing::Axis> axes = {{"X", 2 + 2 * (i % 2)}, {"Y", 2}, {"Z", 3}};
    const Layout source = LayoutOf(testing::RandomLayout(random, axes, {48, 24}), testing::MeshText(axes));
    const Layout target = LayoutOf(testing::RandomLayout(random, axes, {48, 24}), testing::MeshText(axes));
    PlanOptions options = Bytes(random() % 2 == 0);
    options.ops = options.ops.without(movers[random() % movers.size()]);
    options.objective = std::vector<Objective>{Objective::kTime, Objective::kBytes, Objective::kSteps}[random() % 3];
    const auto model = DigitModel::Create(source, target, options.boxes_only);
    if (!model || *Equivalent(source, target)) continue;
    const SequenceResult result = SearchSequence(*model, DType::kI8, options, std::nullopt, kEnough);
    INFO("seed " << seed << ", " << i << ": " << testing::Text(source, result.steps) << "target " << ToString(target));
    REQUIRE(result.found == !result.steps.empty());
    if (!result.found) continue;
    REQUIRE(WrongWith(source, target, result.steps, options) == "");
    const Plan plan = testing::PlanOf(source, target, result.steps, options);
    for (const Step& step : plan.steps) REQUIRE(options.ops.contains(step.op));
    if (options.objective == Objective::kSteps) REQUIRE(result.objective == std::ssize(plan.steps));
    ++found;
  }
  CHECK(found > 60);
}

TEST_CASE("sums are reduced on the way") {
  const Layout source = LayoutOf("[64, 8] sum<X>", "{X:4,Y:2}");
  const Layout target = LayoutOf("[64, <X>8]", "{X:4,Y:2}");
  const SequenceResult result = SearchSequence(ModelOf(source, target), DType::kI8, Bytes(), std::nullopt, kEnough);
  REQUIRE(result.found);
  CHECK(result.exhausted);
  // One reduce-scatter: three other members' contributions to a quarter. Over Y the work can be shared: each half of
  // the devices reduces half, which is then gathered.
  CHECK(result.objective <= 3 * 64 * 8 / 4);
  CHECK(WrongWith(source, target, result.steps, Bytes()) == "");
}

}  // namespace reshard
