#include "tests/planner/simulate/network_cases.h"

#include <cstdlib>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "tests/layouts.h"

namespace reshard::testing {
namespace {

// What a plan does, without what it costs.
std::string StepsText(const Plan& plan) {
  std::string out;
  for (const Step& step : plan.steps) absl::StrAppend(&out, std::string(Name(step.op)), " ", ToString(step.to), "; ");
  absl::StrAppend(&out, plan.chunks.count, " chunks");
  return out;
}

}  // namespace

std::string OpsText(const Plan& plan) {
  std::string out;
  for (const Step& step : plan.steps) absl::StrAppend(&out, out.empty() ? "" : ", ", std::string(Name(step.op)));
  if (plan.chunks.count > 1) absl::StrAppend(&out, " in ", plan.chunks.count, " chunks");
  return out.empty() ? "nothing" : out;
}

std::vector<NetworkCase> NetworkCases(int64_t nodes, int64_t bytes) {
  int64_t side = 1;
  while (side * side * 2 < bytes) side *= 2;
  const auto in_node = MeshOf(absl::StrCat("{dp:", nodes, ",tp:8}"));
  const auto across = MeshOf(absl::StrCat("{dp:", nodes / 2, ",tp:16}"));
  std::vector<NetworkCase> out;
  auto add = [&](const char* name, const Mesh& mesh, const char* from, const char* to) {
    const auto source = ParseLayoutRule(from, mesh, {side, side}), target = ParseLayoutRule(to, mesh, {side, side});
    if (source.ok() && target.ok()) out.push_back({name, *source, *target});
  };
  add("FSDP -> TP", in_node, "[<dp,tp>, *]", "[*, <tp>]");
  add("TP -> FSDP", in_node, "[*, <tp>]", "[<dp,tp>, *]");
  add("FSDP -> FSDP x TP", in_node, "[<dp,tp>, *]", "[<dp>, <tp>]");
  add("FSDP x TP -> TP", in_node, "[<dp>, <tp>]", "[*, <tp>]");
  add("FSDP -> everywhere", in_node, "[<dp,tp>, *]", "[*, *]");
  add("rows -> columns", in_node, "[<dp,tp>, *]", "[*, <dp,tp>]");
  add("dp and tp change places", in_node, "[<dp>, <tp>]", "[<tp>, <dp>]");
  add("another device order", in_node, "[<dp,tp>, *]", "[<tp,dp>, *]");
  add("S0[dp] -> S0[tp]", in_node, "[<dp>, *]", "[<tp>, *]");
  add("S0[tp] -> S0[dp]", in_node, "[<tp>, *]", "[<dp>, *]");
  add("S0[dp] -> everywhere", in_node, "[<dp>, *]", "[*, *]");
  add("S0[dp] -> S1[dp]", in_node, "[<dp>, *]", "[*, <dp>]");
  add("gradients of FSDP x TP", in_node, "[*, <tp>] sum<dp>", "[<dp>, <tp>]");
  add("gradients of FSDP", in_node, "[*, *] sum<dp,tp>", "[<dp,tp>, *]");
  add("gradients everywhere", in_node, "[*, *] sum<dp,tp>", "[*, *]");
  add("gradients of replicas", in_node, "[*, *] sum<dp>", "[*, *]");
  add("TP16 -> FSDP", across, "[*, <tp>]", "[<dp,tp>, *]");
  add("FSDP -> TP16", across, "[<dp,tp>, *]", "[*, <tp>]");
  add("TP16 rows -> TP16 columns", across, "[<tp>, *]", "[*, <tp>]");
  return out;
}

std::vector<Contender> Contenders(const NetworkCase& problem, const Topology& topology) {
  std::vector<Contender> out;
  std::set<std::string> seen;
  const OpSet named = OpSet::All().without(Op::kExchange);
  for (const bool flat : {false, true}) {
    for (const Objective objective : {Objective::kTime, Objective::kBytes, Objective::kSteps}) {
      for (const bool exchange : {true, false}) {
        for (const bool boxes : {false, true}) {
          PlanOptions options;
          options.objective = objective;
          options.ops = exchange ? OpSet::All() : named;
          options.boxes_only = boxes;
          options.topology = flat ? Topology::Flat() : topology;
          auto plan = MakePlan({problem.source, problem.target, DType::kBF16}, options);
          if (!plan.ok() || !seen.insert(StepsText(*plan)).second) continue;
          plan->options.topology = topology;
          out.push_back({absl::StrCat(flat ? "flat " : "", std::string(Name(objective)), exchange ? "" : " named",
                                      boxes ? " boxes" : ""),
                         *std::move(plan)});
        }
      }
    }
  }
  for (const bool overlap : {true, false}) {
    PlanOptions options;
    options.topology = topology;
    options.overlap = overlap;
    auto candidates = CandidatePlans({problem.source, problem.target, DType::kBF16}, options);
    for (size_t i = 0; candidates.ok() && i < candidates->size(); ++i) {
      Plan& plan = (*candidates)[i];
      if (seen.insert(StepsText(plan)).second) out.push_back({"candidate", std::move(plan)});
    }
  }
  return out;
}

std::vector<Runner> Race(const NetworkCase& problem, const Topology& topology) {
  std::vector<Runner> out;
  for (Contender& contender : Contenders(problem, topology)) {
    auto simulation = Simulate(contender.plan);
    if (simulation.ok()) out.push_back({std::move(contender), *std::move(simulation)});
  }
  return out;
}

}  // namespace reshard::testing
