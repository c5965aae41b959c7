// The JSON of a plan, pieces included, is enough to judge it: read back without the library, it stands before the
// oracle.
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "reshard/check/check.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/report.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/oracle/plan_check.h"
#include "tests/property/facts_of_json.h"
#include "tests/property/problems.h"

namespace reshard::testing {
using nlohmann::json;

TEST_CASE("the JSON of a plan stands before the oracle") {
  int judged = 0;
  for (int i = 0; i < 3000; ++i) {
    Choices choices(Seed() + static_cast<uint64_t>(i));
    const RandomProblem problem = MakeProblem(choices, Flavour::Everything());
    INFO("seed " << Seed() << ", problem " << i << ": " << problem.Text());
    const Layout from = LayoutOf(problem.from, problem.mesh);
    const Layout to = LayoutOf(problem.to, problem.target_mesh);
    const auto plan = MakePlan({from, to, problem.dtype}, problem.options);
    if (!plan.ok()) continue;
    const auto text = PlanToJson(*plan, /*with_pieces=*/true);
    REQUIRE(text.ok());
    INFO(*text);
    CHECK(text->find('\n') == std::string::npos);
    const json parsed = json::parse(*text);
    CHECK(parsed.at("schema") == "reshard.plan/1");
    CHECK(parsed.at("shape").get<std::vector<int64_t>>() == from.shape());
    oracle::PlanFacts facts = FactsOfJson(*text);
    const bool all_ops = problem.options.ops == OpSet::All() && !problem.options.boxes_only;
    if (!all_ops) facts.ops = parsed.at("options").at("ops").get<std::vector<std::string>>();
    REQUIRE(parsed.at("pieces").size() == facts.pieces.size());
    REQUIRE(absl::StrJoin(oracle::Check(facts), "\n") == "");
    const auto report = CheckPlans(*text);
    REQUIRE(report.ok());
    INFO(CheckToText(*report));
    REQUIRE(report->agrees());
    ++judged;
    // Without pieces it is the same object less the pieces.
    json bare = json::parse(*PlanToJson(*plan));
    CHECK(!bare.contains("pieces"));
    bare["pieces"] = parsed.at("pieces");
    CHECK(bare == parsed);
  }
  CHECK(judged > 2000);
}

}  // namespace reshard::testing
