// The planner's sequences against the exhaustive optimum, pair by pair.
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/oracle/exhaustive.h"
#include "tests/property/checked.h"
#include "tests/property/facts.h"
#include "tests/property/problems.h"
#include "tests/sanitized.h"

namespace reshard::testing {
namespace {

// One pair in so many is looked at.
constexpr size_t kEvery = kSanitized ? 23 : 1;

const oracle::Exhaustive& Digits() {
  static const oracle::Exhaustive all(3, 3, 8, false);
  return all;
}

PlanOptions Sequences() {
  PlanOptions options;
  options.objective = Objective::kBytes;
  options.ops = OpSet::None().with(Op::kSlice).with(Op::kAllGather).with(Op::kAllToAll).with(Op::kAllPermute);
  return options;
}

PlanOptions Boxes() {
  PlanOptions options;
  options.objective = Objective::kBytes;
  options.boxes_only = true;
  return options;
}

// The sum over steps of the elements that the worst device receives; the plan must stand before the oracle.
int64_t Planned(const Mesh& mesh, const std::string& from, const std::string& to, const PlanOptions& options) {
  const auto source = ParseLayout(from, mesh);
  const auto target = ParseLayout(to, mesh);
  INFO(from << " -> " << to);
  REQUIRE(source.ok());
  REQUIRE(target.ok());
  const auto plan = MakePlan({*source, *target, DType::kI8}, options);
  INFO(plan.status());
  REQUIRE(plan.ok());
  const auto facts = FactsOf(*plan);
  REQUIRE(facts.ok());
  const std::string findings = absl::StrJoin(oracle::Check(*facts), "\n");
  INFO(findings);
  REQUIRE(findings.empty());
  const std::string disagreement = Disagreement(*plan);
  INFO(disagreement);
  REQUIRE(disagreement.empty());
  int64_t sum = 0;
  for (const Step& step : plan->steps) sum += step.recv_bytes_max;
  return sum;
}

}  // namespace

TEST_CASE("sequences with digit-level intermediates reach the exhaustive optimum on every pair of box layouts") {
  const oracle::Exhaustive& all = Digits();
  const auto mesh = MeshOf(all.mesh());
  int64_t pairs = 0;
  for (size_t s = 0; s < all.states().size(); ++s) {
    for (size_t t = 0; t < all.states().size(); ++t) {
      if (!all.states()[s].is_box || !all.states()[t].is_box) continue;
      pairs += all.Bound(s, t) > 0 ? 1 : 0;
      if ((s * all.states().size() + t) % kEvery != 0) continue;
      const int64_t planned = Planned(mesh, all.states()[s].layout, all.states()[t].layout, Sequences());
      INFO(all.states()[s].layout << " -> " << all.states()[t].layout);
      REQUIRE(planned == all.Optimum(s, t));
    }
  }
  CHECK(pairs == 10755);
}

TEST_CASE("sequences reach the exhaustive optimum between digit-level layouts") {
  const oracle::Exhaustive& all = Digits();
  const auto mesh = MeshOf(all.mesh());
  Choices choices(Seed());
  const auto any = [&] {
    return (static_cast<size_t>(choices.Pick(256)) * 256 + static_cast<size_t>(choices.Pick(256))) %
           all.states().size();
  };
  for (int i = 0; i < 4000 / static_cast<int>(kEvery); ++i) {
    const size_t s = any();
    const size_t t = any();
    const int64_t planned = Planned(mesh, all.states()[s].layout, all.states()[t].layout, Sequences());
    INFO(all.states()[s].layout << " -> " << all.states()[t].layout);
    REQUIRE(planned == all.Optimum(s, t));
  }
}

TEST_CASE("sequences reach the exhaustive optimum on every pair of digit-level layouts", "[slow]") {
  const oracle::Exhaustive& all = Digits();
  const auto mesh = MeshOf(all.mesh());
  for (size_t s = 0; s < all.states().size(); ++s) {
    for (size_t t = s % kEvery; t < all.states().size(); t += kEvery) {
      const int64_t planned = Planned(mesh, all.states()[s].layout, all.states()[t].layout, Sequences());
      INFO(all.states()[s].layout << " -> " << all.states()[t].layout);
      REQUIRE(planned == all.Optimum(s, t));
    }
  }
}

TEST_CASE("boxes reach the exhaustive optimum on every pair of box layouts") {
  const oracle::Exhaustive boxes(3, 3, 8, true, oracle::Exhaustive::Steps::kOthersStay);
  const oracle::Exhaustive free(3, 3, 8, true);
  const auto mesh = MeshOf(boxes.mesh());
  for (size_t s = 0; s < boxes.states().size(); ++s) {
    for (size_t t = s % kEvery; t < boxes.states().size(); t += kEvery) {
      const int64_t planned = Planned(mesh, boxes.states()[s].layout, boxes.states()[t].layout, Boxes());
      INFO(boxes.states()[s].layout << " -> " << boxes.states()[t].layout);
      REQUIRE(planned <= boxes.Optimum(s, t));
      REQUIRE(planned >= free.Optimum(s, t));
    }
  }
}

namespace {

// Plans of sampled pairs against the exhaustive optimum. Times are rounded up step by step: an optimum that does in one
// step what others do in several may be a nanosecond a step better.
void Sample(const oracle::Exhaustive& all, Objective objective, int count, uint64_t stream) {
  const auto mesh = MeshOf(all.mesh());
  PlanOptions options = Sequences();
  options.objective = objective;
  Choices choices(Seed() + stream);
  const auto any = [&] {
    return (static_cast<size_t>(choices.Pick(256)) * 256 + static_cast<size_t>(choices.Pick(256))) %
           all.states().size();
  };
  for (int i = 0; i < count / static_cast<int>(kEvery); ++i) {
    const size_t s = any();
    const size_t t = any();
    const auto source = ParseLayout(all.states()[s].layout, mesh);
    const auto target = ParseLayout(all.states()[t].layout, mesh);
    INFO(all.states()[s].layout << " -> " << all.states()[t].layout << " by " << std::string(Name(objective)));
    REQUIRE((source.ok() && target.ok()));
    const auto plan = MakePlan({*source, *target, DType::kI8}, options);
    REQUIRE(plan.ok());
    int64_t value = 0;
    for (const Step& step : plan->steps) {
      value += objective == Objective::kTime ? step.time_ns : objective == Objective::kBytes ? step.recv_bytes_max : 1;
    }
    const int64_t optimum = all.Optimum(s, t);
    REQUIRE(value >= optimum);
    REQUIRE(value <= optimum + (objective == Objective::kTime ? std::ssize(plan->steps) : 0));
  }
}

}  // namespace

TEST_CASE("sequences reach the exhaustive optimum by time and by steps") {
  const auto time = [](int64_t elements, int64_t peers) {
    return peers == 0 ? 0 : Topology::Flat().StepTime(0, peers, elements);
  };
  SECTION("time") {
    Sample(oracle::Exhaustive(3, 3, 8, false, oracle::Exhaustive::Steps::kDefinition, time), Objective::kTime, 4000, 2);
  }
  SECTION("steps") {
    const auto one = [](int64_t, int64_t) { return int64_t{1}; };
    Sample(oracle::Exhaustive(3, 3, 8, false, oracle::Exhaustive::Steps::kDefinition, one), Objective::kSteps, 4000, 3);
  }
}

TEST_CASE("sequences of four axes reach the exhaustive optimum", "[slow]") {
  using Steps = oracle::Exhaustive::Steps;
  const auto time = [](int64_t elements, int64_t peers) {
    return peers == 0 ? 0 : Topology::Flat().StepTime(0, peers, elements);
  };
  SECTION("two dimensions, bytes") { Sample(oracle::Exhaustive(4, 2, 8, false), Objective::kBytes, 4000, 4); }
  SECTION("three dimensions, bytes") { Sample(oracle::Exhaustive(4, 3, 4, false), Objective::kBytes, 4000, 5); }
  SECTION("two dimensions, time") {
    Sample(oracle::Exhaustive(4, 2, 8, false, Steps::kDefinition, time), Objective::kTime, 4000, 6);
  }
}

// How the axes of a mesh are cut does not matter: {X:4,Y:2} and {X:8} are the same devices as {A:2,B:2,C:2}.
TEST_CASE("sequences reach the exhaustive optimum however the axes are cut") {
  const oracle::Exhaustive& all = Digits();
  const auto renamed = [](std::string layout, const std::vector<std::string>& names) {
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string axis(1, static_cast<char>('A' + i));
      const size_t at = layout.find(axis);
      if (at != std::string::npos) layout.replace(at, 1, "#" + std::to_string(i));
    }
    for (size_t i = 0; i < names.size(); ++i) {
      const size_t at = layout.find("#" + std::to_string(i));
      if (at != std::string::npos) layout.replace(at, 2, names[i]);
    }
    return layout;
  };
  const std::vector<std::pair<std::string, std::vector<std::string>>> cuts = {
      {"{X:4,Y:2}", {"X:(1)2", "X:(2)2", "Y"}},
      {"{X:2,Y:4}", {"X", "Y:(1)2", "Y:(2)2"}},
      {"{X:8}", {"X:(1)2", "X:(2)2", "X:(4)2"}},
  };
  Choices choices(Seed() + 1);
  for (const auto& [mesh_text, names] : cuts) {
    const auto mesh = MeshOf(mesh_text);
    for (int i = 0; i < 1000 / static_cast<int>(kEvery);) {
      const auto any = [&] {
        return (static_cast<size_t>(choices.Pick(256)) * 256 + static_cast<size_t>(choices.Pick(256))) %
               all.states().size();
      };
      const size_t s = any();
      const size_t t = any();
      if (!all.states()[s].is_box || !all.states()[t].is_box) continue;
      ++i;
      const std::string from = renamed(all.states()[s].layout, names);
      const std::string to = renamed(all.states()[t].layout, names);
      const int64_t planned = Planned(mesh, from, to, Sequences());
      INFO(mesh_text << " " << from << " -> " << to);
      REQUIRE(planned == all.Optimum(s, t));
    }
  }
}

}  // namespace reshard::testing
