// Any bytes as a plan to judge. What the judge says of a small one is held against the oracle, which shares no code
// with it: the bounds and the bytes that it derived, and, where the plan lists its pieces, that a plan with which it
// agrees is one that can be carried out.
#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "reshard/check/check.h"
#include "tests/fuzz/fuzz.h"
#include "tests/oracle/holdings.h"
#include "tests/oracle/plan_check.h"
#include "tests/property/facts_of_json.h"

namespace reshard::testing {
namespace {

using nlohmann::json;

// The oracle goes through every element on every device.
bool IsSmall(const oracle::Layout& layout) {
  int64_t work = layout.mesh.size();
  for (const int64_t size : layout.shape()) {
    if (size > 4096) return false;
    work *= std::max<int64_t>(size, 1);
    if (work > (int64_t{1} << 18)) return false;
  }
  return true;
}

// What no way from here to there can beat is what a step without reductions receives: it is sent what it lacks.
void HoldStep(const DerivedStep& step, const oracle::Layout& from, const oracle::Layout& to, int64_t bytes) {
  if (step.op == "AllReduce" || step.op == "ReduceScatter") return;
  const oracle::LowerBounds lacks = oracle::Bounds(from, to, bytes);
  Promised(step.recv_bytes_max == lacks.recv_max, "a step receives what the oracle says that it lacks");
  Promised(step.recv_bytes_total == lacks.recv_total, "steps receive what the oracle says that they lack in all");
}

void HoldDerived(const DerivedPlan& derived, const json& plan) {
  const auto text = [](const json& object, const char* key) { return object.at(key).get<std::string>(); };
  const int64_t bytes = ElementBytes(text(plan, "dtype"));
  oracle::Mesh mesh = oracle::ParseMesh(text(plan, "mesh"));
  const oracle::Mesh target_mesh = oracle::ParseMesh(plan.value("target_mesh", text(plan, "mesh")));
  const oracle::Layout source = oracle::ParseLayout(text(plan, "source"), mesh);
  const oracle::Layout target = oracle::ParseLayout(text(plan, "target"), target_mesh);
  if (!IsSmall(source) || !IsSmall(target) || oracle::Pends(target)) return;
  const oracle::LowerBounds bounds = oracle::Bounds(source, target, bytes);
  Promised(derived.bound_recv_bytes_max == bounds.recv_max, "the bound is the oracle's");
  Promised(derived.bound_recv_bytes_total == bounds.recv_total, "the bound in all is the oracle's");
  Promised(derived.bound_intermediate_bytes_max == bounds.local_max, "the larger end is the oracle's");
  for (size_t s = 0; s < derived.steps.size(); ++s) {
    const json& step = plan.at("steps").at(s);
    const oracle::Mesh to_mesh = step.contains("to_mesh") ? oracle::ParseMesh(text(step, "to_mesh")) : mesh;
    const oracle::Layout from = oracle::ParseLayout(text(step, "from"), mesh);
    const oracle::Layout to = oracle::ParseLayout(text(step, "to"), to_mesh);
    if (oracle::Pends(from) || oracle::Pends(to)) return;
    HoldStep(derived.steps[s], from, to, bytes);
    mesh = to_mesh;
  }
}

// What the oracle throws where it can do no more.
bool IsBeyondOracle(std::string_view why) {
  return why.find("oracle: more than 64 contributions") != std::string_view::npos ||
         why.find("oracle: partial over another mesh") != std::string_view::npos;
}

void HoldAgreement(const json& plan) {
  oracle::PlanFacts facts = FactsOfJson(plan.dump());
  if (!IsSmall(oracle::ParseLayout(facts.source, oracle::ParseMesh(facts.mesh)))) return;
  if (!IsSmall(oracle::ParseLayout(facts.target, oracle::ParseMesh(facts.target_mesh)))) return;
  // Which plan is the best is the planner's promise, not the judge's.
  facts.flat_topology = false;
  for (const std::string& finding : oracle::Check(facts)) Promised(IsBeyondOracle(finding), finding.c_str());
}

void HoldAgainstOracle(const PlanVerdict& verdict, std::string_view text) {
  const json plan = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!plan.is_object() || !verdict.derived) return;
  try {
    HoldDerived(*verdict.derived, plan);
    if (verdict.agrees() && plan.contains("schema") && plan.contains("pieces")) HoldAgreement(plan);
  } catch (const std::exception& e) {
    Promised(IsBeyondOracle(e.what()), e.what());
  }
}

}  // namespace
}  // namespace reshard::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reshard;
  const std::string_view text = testing::Text(data, size);
  const absl::StatusOr<CheckReport> report = CheckPlans(text);
  if (!report.ok()) {
    testing::Promised(report.status().code() != absl::StatusCode::kInternal, "bad input is not an internal error");
    return 0;
  }
  for (const PlanVerdict& plan : report->plans) {
    if (!plan.derived) continue;
    testing::Promised(plan.derived->recv_bytes_max >= 0 && plan.derived->recv_bytes_total >= 0, "nothing wraps");
    testing::Promised(plan.derived->peak_bytes.low <= plan.derived->peak_bytes.high, "a range is one");
  }
  if (!report->batch && report->plans.size() == 1) testing::HoldAgainstOracle(report->plans.front(), text);
  const nlohmann::json json = nlohmann::json::parse(CheckToJson(*report), nullptr, /*allow_exceptions=*/false);
  testing::Promised(!json.is_discarded(), "a report is JSON");
  testing::Promised(!CheckToText(*report).empty() || report->plans.empty(), "a report says something");
  return 0;
}
