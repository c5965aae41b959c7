#include "tests/check/plans.h"

#include <memory>

#include "reshard/check/check.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/report.h"
#include "tests/catch.h"
#include "tests/layouts.h"

namespace reshard::testing {

const std::vector<Case>& Cases() {
  static const auto* cases = new std::vector<Case>{
      {"permute", "{X:4,Y:4}", "[<X,Y>64, 800]", "[<Y,X>64, 800]"},
      {"all-to-all", "{X:4}", "[<X>16, 800]", "[16, <X>800]"},
      {"gather", "{X:4,Y:2}", "[<X>16, 600]", "[16, 600]"},
      {"uneven exchange", "{X:3,Y:2}", "[<X>1000, 7]", "[1000, <Y,X>7]"},
      {"blocks", "{X:4}", "[<2,X>24000]", "[<X>24000]"},
      {"reduce-scatter", "{X:4,Y:2}", "[16, 4000] sum<X>", "[<X>16, <Y>4000]"},
      {"all-reduce", "{X:4}", "[10001] max<X>", "[10001]"},
      {"kept partial", "{X:2,Y:4}", "[<Y>16, 4000] sum<X>", "[16, <Y>4000] sum<X>"},
      {"meshes", "{X:4}", "[<X>16, 600]", "[16, <Y>600]", "{Y:3}@2"},
      {"sequence", "{A:2,B:2,C:2}", "[8, <A,B>8, 800]", "[<A,B>8, <C>8, 800]", nullptr, true},
      {"rounds", "{X:4}", "[<X>64, 6400]", "[64, <X>6400]", nullptr, false, 500000},
      {"domains", "{N:2,X:8}", "[<N>64, <X>6400]", "[<X>64, <N>6400]", nullptr, false, 0, "dgx-h100"},
  };
  return *cases;
}

std::string PlanText(const Case& c, bool with_pieces) {
  const auto mesh = MeshOf(c.mesh);
  const auto to_mesh = c.to_mesh == nullptr ? mesh : MeshOf(c.to_mesh);
  PlanOptions options;
  if (c.sequences) options.ops = options.ops.without(Op::kExchange);
  if (c.memory_limit > 0) options.memory_limit_bytes = c.memory_limit;
  options.topology = *Topology::Preset(c.topology);
  const auto plan = MakePlan({*ParseLayout(c.from, mesh), *ParseLayout(c.to, to_mesh), DType::kBF16}, options);
  INFO(c.name << " " << plan.status());
  REQUIRE(plan.ok());
  REQUIRE_FALSE(plan->steps.empty());
  return PlanToJson(*plan, with_pieces).value();
}

std::string WrongWith(const std::string& text) {
  const auto report = CheckPlans(text);
  if (!report.ok()) return "refused: " + report.status().ToString();
  return report->agrees() ? "" : CheckToText(*report);
}

}  // namespace reshard::testing
