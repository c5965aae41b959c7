// `reshard run`: the request, and what is printed, wherever the ranks are.
#ifndef RESHARD_TOOLS_RESHARD_RUN_RUN_COMMAND_H_
#define RESHARD_TOOLS_RESHARD_RUN_RUN_COMMAND_H_

#include <cstdint>
#include <optional>
#include <string>

#include "reshard/planner/plan.h"
#include "reshard/runtime/verify_run.h"
#include "tools/reshard/commands.h"

namespace reshard::tool {

struct RunCommand {
  PlanFlags flags;
  std::string over = "threads";  // or "mpi"
  bool verify = true, json = false;
  int64_t repeat = 10;
};

// The plan that the command runs, or an exit code whose reason Fail has reported.
struct PlanOrCode {
  std::optional<Plan> plan;
  int code = 0;
};
PlanOrCode PlanOf(const RunCommand& command);

// What the processes of an MPI program found together.
struct MpiReport {
  RunReport run;           // without the comparison with memcpy
  int64_t processes = 0;   // of the program; run.ranks of them hold something
  int64_t size_bytes = 0;  // of the larger of a rank's two fragments, on the rank where it is largest
};

// One JSON object with --json, otherwise the plan and a few lines.
std::string Printed(const Plan& plan, const RunReport& report, const RunCommand& command);
// The same; the lines have the columns of nccl-tests.
std::string Printed(const Plan& plan, const MpiReport& report, const RunCommand& command);

// Runs the plan between the processes of the MPI program that this process belongs to. Returns the exit code.
//
// The command is not linked with MPI, and runs where there is none. It becomes the program reshard-mpi, with the same
// arguments: the same command linked with MPI, where this function has a different definition.
int RunOverMpi(const RunCommand& command);

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_RUN_RUN_COMMAND_H_
