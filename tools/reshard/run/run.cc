// reshard run MESH FROM TO: executes a plan with real data and checks every element.
#include <memory>
#include <utility>

#include "reshard/planner/planner.h"
#include "tools/reshard/exit_code.h"
#include "tools/reshard/run/run_command.h"

namespace reshard::tool {
namespace {

int RunOnThreads(const RunCommand& command) {
  const PlanOrCode planned = PlanOf(command);
  if (!planned.plan) return planned.code;
  RunOptions options;
  options.repeat = command.repeat;
  options.verify = command.verify;
  const auto report = RunPlanLocally(*planned.plan, options);
  if (!report.ok()) return Fail(report.status(), Stage::kRun);
  if (const int code = Print(Printed(*planned.plan, *report, command)); code != kOk) return code;
  return command.verify && !report->verified ? kDifferences : kOk;
}

int Run(const RunCommand& command) {
  if (command.over == "threads") return RunOnThreads(command);
  if (command.over == "mpi") return RunOverMpi(command);
  return Fail(kUsage, "--over must be threads or mpi");
}

}  // namespace

PlanOrCode PlanOf(const RunCommand& command) {
  ProblemText text;
  DType dtype = DType::kF32;
  PlanOptions options;
  if (const int code = command.flags.Parse(text, dtype, options); code != kOk) return {std::nullopt, code};
  if (!command.flags.has_problem()) return {std::nullopt, Fail(kUsage, "run requires MESH FROM TO")};
  if (command.repeat < 1 || command.repeat > 1'000'000) {
    return {std::nullopt, Fail(kUsage, "--repeat must be between 1 and 1000000")};
  }
  const auto problem = ReadProblem(text, dtype, "--to-mesh");
  if (!problem.ok()) return {std::nullopt, Fail(problem.status(), Stage::kInput)};
  auto plan = MakePlan(*problem, options);
  if (!plan.ok()) return {std::nullopt, Fail(plan.status(), Stage::kPlan)};
  return {*std::move(plan), kOk};
}

Action AddRun(CLI::App& app) {
  auto state = std::make_shared<RunCommand>();
  CLI::App& run = *app.add_subcommand("run", "Execute a plan with real data and check every element");
  run.group(kOfLayouts);
  state->flags.Declare(run, "f32");
  run.option_defaults()->group("Run and output");
  run.add_option("--over", state->over,
                 "what the ranks are: threads of this process, or the processes of an MPI program, which mpirun starts")
      ->capture_default_str()
      ->type_name("threads|mpi");
  run.add_flag("--verify,!--no-verify", state->verify, "check every element on every device (the default)");
  run.add_option("--repeat", state->repeat, "number of timed executions, of which the median is printed")
      ->capture_default_str()
      ->type_name("N");
  run.add_flag("--json", state->json, "print one JSON object (reshard.run/1)");
  run.footer(
      "# Eight threads move real data, and every element is checked\n"
      "reshard run '{X:8}' '[<X>1024, 256]' '[1024, <X>256]'\n");
  return [state] { return Run(*state); };
}

}  // namespace reshard::tool
