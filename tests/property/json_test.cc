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
#include "tests/oracle/plan_check.h"
#include "tests/property/problems.h"

namespace reshard::testing {
namespace {

using nlohmann::json;

int64_t BytesOf(const std::string& dtype) {
  if (dtype == "i8") return 1;
  if (dtype == "bf16") return 2;
  if (dtype == "f32") return 4;
  REQUIRE(dtype == "c128");
  return 16;
}

oracle::PlanFacts FactsOfJson(const json& plan) {
  oracle::PlanFacts facts;
  facts.mesh = plan.at("mesh");
  facts.target_mesh = plan.value("target_mesh", facts.mesh);
  facts.source = plan.at("source");
  facts.target = plan.at("target");
  facts.world = plan.at("world");
  facts.element_bytes = BytesOf(plan.at("dtype"));
  const json& options = plan.at("options");
  facts.objective = options.at("objective");
  if (!options.at("memory_limit_bytes").is_null()) facts.memory_limit_bytes = options.at("memory_limit_bytes");
  std::string mesh = facts.mesh;
  for (const json& step : plan.at("steps")) {
    oracle::StepFacts& out = facts.steps.emplace_back();
    out.op = step.at("op");
    out.axes = step.at("axes").get<std::vector<std::string>>();
    out.from_mesh = step.value("from_mesh", mesh);
    out.from = step.at("from");
    out.to_mesh = step.value("to_mesh", mesh);
    out.to = step.at("to");
    CHECK(step.contains("from_mesh") == (out.from_mesh != out.to_mesh));
    CHECK(out.from_mesh == mesh);
    mesh = out.to_mesh;
    out.group_size = step.at("group_size");
    out.recv_bytes_max = step.at("recv_bytes_max");
    out.recv_bytes_total = step.at("recv_bytes_total");
    out.send_bytes_max = step.at("send_bytes_max");
    out.local_bytes_before_max = step.at("local_bytes_before_max");
    out.local_bytes_after_max = step.at("local_bytes_after_max");
    out.peers_max = step.at("peers_max");
    out.time_ns = step.at("time_ns");
  }
  for (const json& piece : plan.at("pieces")) {
    REQUIRE(piece.size() == 5);
    facts.pieces.push_back(
        {piece[0], piece[1], piece[2], piece[3].get<std::vector<int64_t>>(), piece[4].get<std::vector<int64_t>>()});
  }
  const json& totals = plan.at("totals");
  facts.recv_bytes_max = totals.at("recv_bytes_max");
  facts.recv_bytes_total = totals.at("recv_bytes_total");
  facts.intermediate_bytes_max = totals.at("intermediate_bytes_max");
  facts.peak_bytes = totals.at("peak_bytes");
  facts.time_ns = totals.at("time_ns");
  const json& bounds = plan.at("bounds");
  facts.bound_recv_bytes_max = bounds.at("recv_bytes_max");
  facts.bound_recv_bytes_total = bounds.at("recv_bytes_total");
  facts.bound_intermediate_bytes_max = bounds.at("intermediate_bytes_max");
  facts.certificate = plan.at("certificate").at("kind");
  return facts;
}

}  // namespace

TEST_CASE("the JSON of a plan stands before the oracle") {
  int judged = 0;
  for (int i = 0; i < 3000; ++i) {
    Choices choices(Seed() + static_cast<uint64_t>(i));
    const Problem problem = MakeProblem(choices, Flavour::Everything());
    INFO("seed " << Seed() << ", problem " << i << ": " << problem.Text());
    const auto mesh = std::make_shared<const Mesh>(*ParseMesh(problem.mesh));
    const auto target_mesh = std::make_shared<const Mesh>(*ParseMesh(problem.target_mesh));
    const Layout from = *ParseLayout(problem.from, mesh);
    const Layout to = *ParseLayout(problem.to, target_mesh);
    const auto plan = MakePlan(from, to, problem.dtype, problem.options);
    if (!plan.ok()) continue;
    const auto text = PlanToJson(*plan, /*with_pieces=*/true);
    REQUIRE(text.ok());
    INFO(*text);
    CHECK(text->find('\n') == std::string::npos);
    const json parsed = json::parse(*text);
    CHECK(parsed.at("schema") == "reshard.plan/1");
    CHECK(parsed.at("shape").get<std::vector<int64_t>>() == from.shape());
    oracle::PlanFacts facts = FactsOfJson(parsed);
    const bool all_ops = problem.options.ops == OpSet::All() && !problem.options.boxes_only;
    if (!all_ops) facts.ops = parsed.at("options").at("ops").get<std::vector<std::string>>();
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
