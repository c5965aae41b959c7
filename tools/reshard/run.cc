// reshard run MESH FROM TO: executes a plan on in-process ranks with real data and checks every element.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/report.h"
#include "reshard/planner/version.h"
#include "reshard/runtime/verify_run.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/exit_code.h"

namespace reshard::tool {
namespace {

struct RunCommand {
  PlanFlags flags;
  bool verify = true, json = false;
  int64_t repeat = 10;
};

std::string ReportJson(const Plan& plan, const RunReport& report, const RunCommand& state) {
  nlohmann::ordered_json out;
  out["schema"] = "reshard.run/1";
  out["reshard_version"] = Version();
  out["mesh"] = ToString(plan.source.mesh());
  if (!(plan.source.mesh() == plan.target.mesh())) out["target_mesh"] = ToString(plan.target.mesh());
  out["dtype"] = std::string(Name(plan.dtype));
  out["shape"] = plan.source.shape();
  out["source"] = ToString(plan.source);
  out["target"] = ToString(plan.target);
  out["ranks"] = report.ranks;
  out["ops"] = nlohmann::ordered_json::array();
  for (const Step& step : plan.steps) out["ops"].push_back(std::string(Name(step.op)));
  out["repeat"] = state.repeat;
  out["seconds_median"] = report.seconds_median;
  out["bytes_moved"] = report.bytes_moved;
  out["gb_per_s"] = report.gb_per_s;
  out["memcpy_ratio"] = report.memcpy_ratio;
  out["recv_bytes_max"] = report.received_bytes_max;
  out["recv_bytes_total"] = report.received_bytes_total;
  if (state.verify) {
    out["verified"] = report.verified;
  } else {
    out["verified"] = nullptr;
  }
  out["elements_checked"] = report.elements_checked;
  out["mismatches"] = report.mismatches;
  return out.dump() + "\n";
}

std::string ReportText(const Plan& plan, const RunReport& report, const RunCommand& state) {
  std::string out = PlanToText(plan);
  absl::StrAppendFormat(&out,
                        "ran on %d ranks: median %.3g ms of %d, %s moved, %.2f GB/s, %.2fx memcpy of the same bytes\n",
                        report.ranks, report.seconds_median * 1e3, state.repeat, HumanBytes(report.bytes_moved),
                        report.gb_per_s, report.memcpy_ratio);
  absl::StrAppend(&out, "the busiest rank received ", HumanBytes(report.received_bytes_max), ", as planned\n");
  if (!state.verify) {
    absl::StrAppend(&out, "not verified\n");
  } else if (report.verified) {
    absl::StrAppend(&out, "verified: ", report.elements_checked, " elements checked, all correct\n");
  } else {
    absl::StrAppend(&out, "WRONG: ", report.mismatches, " of ", report.elements_checked,
                    " elements; first: ", report.first_mismatch, "\n");
  }
  return out;
}

int MoveAndReport(const RunCommand& state) {
  ProblemText text;
  DType dtype = DType::kF32;
  PlanOptions options;
  if (int code = state.flags.Parse(text, dtype, options); code != kOk) return code;
  if (!state.flags.has_problem()) return Fail(kUsage, "run requires MESH FROM TO");
  if (state.repeat < 1 || state.repeat > 1'000'000) return Fail(kUsage, "--repeat must be between 1 and 1000000");
  auto problem = ReadProblem(text, dtype);
  if (!problem.ok()) return Fail(problem.status(), Stage::kInput);
  auto plan = MakePlan(*problem, options);
  if (!plan.ok()) return Fail(plan.status(), Stage::kPlan);
  RunOptions run;
  run.repeat = state.repeat;
  run.verify = state.verify;
  auto report = RunPlanLocally(*plan, run);
  if (!report.ok()) return Fail(report.status(), Stage::kRun);
  const std::string out = state.json ? ReportJson(*plan, *report, state) : ReportText(*plan, *report, state);
  if (const int code = Print(out); code != kOk) return code;
  return state.verify && !report->verified ? kDifferences : kOk;
}

}  // namespace

Action AddRun(CLI::App& app) {
  auto state = std::make_shared<RunCommand>();
  CLI::App& run = *app.add_subcommand("run", "Execute a plan on in-process ranks with real data and check it");
  run.group(kOfLayouts);
  state->flags.Declare(run, "f32");
  run.option_defaults()->group("Run and output");
  run.add_flag("--verify,!--no-verify", state->verify, "check every element on every device (the default)");
  run.add_option("--repeat", state->repeat, "number of timed executions, of which the median is printed")
      ->capture_default_str()
      ->type_name("N");
  run.add_flag("--json", state->json, "print one JSON object (reshard.run/1)");
  run.footer(
      "# Eight threads move real data, and every element is checked\n"
      "reshard run '{X:8}' '[<X>1024, 256]' '[1024, <X>256]'\n");
  return [state] { return MoveAndReport(*state); };
}

}  // namespace reshard::tool
