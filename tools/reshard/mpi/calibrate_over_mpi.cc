// CalibrateOverMpi of reshard-mpi: this process is a rank.
#include <mpi.h>

#include "absl/strings/str_cat.h"
#include "reshard/planner/planner.h"
#include "reshard/runtime/verify_run.h"
#include "tools/reshard/exit_code.h"
#include "tools/reshard/mpi/as_rank.h"
#include "tools/reshard/run/calibrate_command.h"

namespace reshard::tool {
namespace {

// The nodes, derived from the hosts of the processes. Collective. InvalidArgument, on every rank, if the processes of a
// host are not consecutive ranks, or some hosts have more processes than others.
absl::StatusOr<CalibratedJob> FindNodes(int rank, int ranks) {
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
  int devices = 1, place = 0;
  MPI_Comm_size(host, &devices);
  MPI_Comm_rank(host, &place);
  MPI_Comm_free(&host);
  int largest = devices;
  MPI_Allreduce(MPI_IN_PLACE, &largest, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  int fits = devices == largest && rank % devices == place ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &fits, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (fits == 0) {
    return absl::InvalidArgumentError(
        "the processes of a host must be consecutive ranks, and as many on each host; start them so (as by mpirun "
        "--map-by slot), or say --nodes NxD");
  }
  return CalibratedJob{ranks / largest, largest};
}

absl::StatusOr<CalibratedJob> JobOf(const CalibrateCommand& command, int rank, int ranks) {
  CalibratedJob job;
  if (command.nodes) {
    job = {command.nodes->first, command.nodes->second};
    if (job.nodes < 1 || job.devices < 1 || job.nodes > ranks || job.nodes * job.devices != ranks) {
      return absl::InvalidArgumentError(
          absl::StrCat("--nodes says ", job.nodes, "x", job.devices, ", but the program has ", ranks, " processes"));
    }
  } else {
    absl::StatusOr<CalibratedJob> found = FindNodes(rank, ranks);
    if (!found.ok()) return found;
    job = *found;
  }
  job.bytes = command.bytes;
  return job;
}

// The median time of the slowest rank.
absl::StatusOr<double> SecondsOf(const Probe& probe, Communicator& comm, int64_t repeat) {
  PlanOptions options;
  options.ops = OpSet::None().with(Op::kAllToAll);
  const auto plan = MakePlan(probe.problem, options);
  if (!plan.ok()) return plan.status();
  RunOptions run;
  run.verify = false;
  run.repeat = probe.is_large ? repeat : 10 * repeat;  // the differences between short ones count
  const auto found = RunPlanOnRank(*plan, comm, run);
  if (!found.ok()) return found.status();
  return MedianOf(LargestSorted(found->seconds));
}

int CalibrateAsRank(const CalibrateCommand& command, Communicator& comm, int rank, int ranks) {
  const auto job = JobOf(command, rank, ranks);
  if (!job.ok()) return FailAsRank(job.status(), kUsage, comm, rank);
  const auto probes = CalibrationProbes(*job);
  if (!probes.ok()) return FailAsRank(probes.status(), kUsage, comm, rank);
  std::vector<double> seconds;
  for (const Probe& probe : *probes) {
    const auto found = SecondsOf(probe, comm, command.repeat);
    if (!found.ok()) return FailAsRank(found.status(), ExitCodeOf(found.status(), Stage::kRun), comm, rank);
    seconds.push_back(*found);
  }
  const auto topology = FitTopology(*job, seconds);
  if (!topology.ok()) return FailAsRank(topology.status(), kInternal, comm, rank);
  return rank == 0 ? PrintCalibration(command, *job, *probes, seconds, *topology) : kOk;
}

}  // namespace

int CalibrateOverMpi(const CalibrateCommand& command) {
  return AsRank([&](Communicator& comm, int rank, int ranks) { return CalibrateAsRank(command, comm, rank, ranks); });
}

}  // namespace reshard::tool
