// RunOverMpi of reshard-mpi: this process is a rank.
#include <mpi.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/reshard/exit_code.h"
#include "tools/reshard/mpi/as_rank.h"
#include "tools/reshard/run/run_command.h"

namespace reshard::tool {
namespace {

template <typename T>
T Combined(T value, MPI_Datatype type, MPI_Op op) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, type, op, MPI_COMM_WORLD);
  return value;
}
int64_t Sum(int64_t value) { return Combined(value, MPI_INT64_T, MPI_SUM); }
int64_t Largest(int64_t value) { return Combined(value, MPI_INT64_T, MPI_MAX); }

// The text of the lowest rank that has one.
std::string FirstText(const std::string& text, int rank, int ranks) {
  const int from = Combined(text.empty() ? ranks : rank, MPI_INT, MPI_MIN);
  if (from == ranks) return "";
  char buffer[512] = {};
  if (from == rank) text.copy(buffer, sizeof(buffer) - 1);
  MPI_Bcast(buffer, sizeof(buffer), MPI_CHAR, from, MPI_COMM_WORLD);
  return buffer;
}

int64_t LargerFragment(const Plan& plan, int64_t rank) {
  int64_t bytes = 0;
  for (const Layout* layout : {&plan.source, &plan.target}) {
    const auto position = layout->mesh().Position(rank);
    if (position) bytes = std::max(bytes, NumElements(layout->LocalShape(*position)) * SizeOf(plan.dtype));
  }
  return bytes;
}

// Collective, and without a deadline: returns when all ranks have called it.
MpiReport Together(const Plan& plan, const RankReport& own, const RunCommand& command, int rank, int ranks) {
  MpiReport out;
  out.processes = ranks;
  out.size_bytes = Largest(LargerFragment(plan, rank));
  RunReport& run = out.run;
  const bool holds = plan.source.mesh().Position(rank) || plan.target.mesh().Position(rank);
  run.ranks = Sum(holds ? 1 : 0);
  run.bytes_moved = Sum(own.moved.written);
  run.received_bytes_max = Largest(own.moved.received);
  run.received_bytes_total = Sum(own.moved.received);
  run.elements_checked = Sum(own.elements_checked);
  run.mismatches = Sum(own.mismatches);
  run.verified = command.verify && run.mismatches == 0;
  run.first_mismatch = FirstText(own.first_mismatch, rank, ranks);
  const std::vector<double> seconds = LargestSorted(own.seconds);
  run.seconds_min = seconds.front();
  run.seconds_median = MedianOf(seconds);
  if (run.seconds_median > 0) run.gb_per_s = static_cast<double>(run.bytes_moved) / run.seconds_median / 1e9;
  return out;
}

// InvalidArgument: the program has too few processes for the plan.
absl::Status CheckProcesses(const Plan& plan, const Communicator& comm) {
  for (const Layout* layout : {&plan.source, &plan.target}) {
    const absl::Status status = comm.CheckRanksOf(layout->mesh());
    if (status.ok()) continue;
    return absl::InvalidArgumentError(absl::StrCat(status.message(), ": start one process per device, as by mpirun -n ",
                                                   std::max(plan.source.mesh().size(), plan.target.mesh().size()),
                                                   " reshard run ... --over mpi"));
  }
  return absl::OkStatus();
}

int RunAsRank(const RunCommand& command, Communicator& comm, int rank, int ranks) {
  // All processes read the same arguments, so one of them says what is wrong; but a file may be missing on one host.
  PlanOrCode planned;
  absl::Status own;
  {
    const HeldErrors held;
    planned = PlanOf(command);
    if (!planned.plan) own = absl::InvalidArgumentError(held.text());
  }
  if (own.ok()) {
    own = CheckProcesses(*planned.plan, comm);
    planned.code = ExitCodeOf(own, Stage::kRun);
  }
  if (const absl::Status agreed = comm.Agree(own, {}); !agreed.ok()) {
    return FailAsRank(agreed, own.ok() ? kPeer : planned.code, comm, rank);
  }
  RunOptions options;
  options.repeat = command.repeat;
  options.verify = command.verify;
  const auto found = RunPlanOnRank(*planned.plan, comm, options);
  if (!found.ok()) return FailAsRank(found.status(), ExitCodeOf(found.status(), Stage::kRun), comm, rank);
  const MpiReport report = Together(*planned.plan, *found, command, rank, ranks);
  int code = command.verify && !report.run.verified ? kDifferences : kOk;
  if (rank == 0) {
    if (const int printed = Print(Printed(*planned.plan, report, command)); printed != kOk) code = printed;
  }
  return code;
}

}  // namespace

int RunOverMpi(const RunCommand& command) {
  return AsRank([&](Communicator& comm, int rank, int ranks) { return RunAsRank(command, comm, rank, ranks); });
}

}  // namespace reshard::tool
