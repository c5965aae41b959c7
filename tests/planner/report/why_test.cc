#include "planner/report/why.h"

#include "reshard/planner/planner.h"
#include "reshard/planner/units.h"
#include "tests/catch.h"
#include "tests/layouts.h"

namespace reshard {
namespace {

using testing::ProblemOf;

Plan PlanOf(const char* mesh, const char* from, const char* to, const char* topology = "flat",
            PlanOptions options = {}) {
  options.topology = *Topology::Preset(topology);
  const auto plan = MakePlan(ProblemOf(mesh, from, to), options);
  REQUIRE(plan.ok());
  return *plan;
}

TEST_CASE("why a plan was chosen is compared with the best that lost") {
  const Plan nothing = PlanOf("{X:4}", "[<X>8]", "[<X>8]");
  CHECK(report::WhyChosen(nothing) == "Nothing moves: every device already holds what the target asks for.");
  // The next best is compared by what the topology makes slow.
  const Plan nodes = PlanOf("{dp:4,tp:4}", "[<dp>64, 64]", "[64, <tp>64]", "dgx-h100");
  CHECK_THAT(report::WhyChosen(nodes),
             Catch::Matches("Chosen because it is [0-9.]+x faster than .* \\(.* us\\): .*between nodes.*\\.",
                            Catch::CaseSensitive::Yes));
  PlanOptions bytes;
  bytes.objective = Objective::kBytes;
  CHECK_THAT(report::WhyChosen(PlanOf("{X:4}", "[<X>64, 64]", "[64, <X>64]", "flat", bytes)),
             Catch::StartsWith("Chosen because"));
  // Above the bound, the sentence says what fewer bytes would have cost.
  for (const char* to : {"[64, 64]", "[64, <dp>64]", "[<tp>64, 64]"}) {
    const Plan plan = PlanOf("{dp:4,tp:8}", "[<dp,tp>64, 64]", to, "dgx-h100");
    const bool above = plan.totals.recv_bytes_max > plan.bounds.recv_bytes_max;
    CHECK((report::WhyChosen(plan).find("the lower bound") != std::string::npos) == above);
  }
}

TEST_CASE("a half is rounded up, as the pages round it") {
  CHECK(HumanBytes(501 << 19) == "251 MiB");  // 250.5
  CHECK(HumanBytes(17 << 17) == "2.13 MiB");  // 2.125
  CHECK(HumanBytes(1023) == "1023 B");
  CHECK(HumanTime(1125) == "1.13 us");
}

}  // namespace
}  // namespace reshard
