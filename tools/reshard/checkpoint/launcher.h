// Which worker of how many this process is, according to its launcher's environment variables.
#ifndef RESHARD_TOOLS_RESHARD_CHECKPOINT_LAUNCHER_H_
#define RESHARD_TOOLS_RESHARD_CHECKPOINT_LAUNCHER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace reshard::tool {

struct WorkerOf {
  int64_t id = 0;       // from 0
  int64_t workers = 1;  // more than `id`
  std::string by;       // "Slurm", "Open MPI", "MPI", "torchrun"; empty: flags said it
};

// The flags --workers and --worker-id, where they were given.
struct WorkerFlags {
  std::optional<int64_t> workers;
  std::optional<int64_t> id;
};

// Flags come first. `--workers N` alone takes the id from the launcher: RANK, OMPI_COMM_WORLD_RANK, PMI_RANK,
// SLURM_PROCID or JOB_COMPLETION_INDEX, the first that is set. Without `--workers` there are several workers only where
// the launcher says that this process itself is one of several: SLURM_STEP_NUM_TASKS (not SLURM_NTASKS, which a batch
// script inherits), OMPI_COMM_WORLD_SIZE, PMI_SIZE; and torchrun's WORLD_SIZE for `python -m reshard` alone, since a
// training script may well run the command on one of its ranks.
//
//   srun -n 8, flags none                  -> {3, 8, "Slurm"} on the fourth task
//   SLURM_PROCID=3, --workers 4            -> {3, 4, "Slurm"}
//   --workers 1                            -> {0, 1, ""}, whatever the launcher says
//
// InvalidArgument: an id or a number that is out of range or cannot be read; several workers and no id.
absl::StatusOr<WorkerOf> FindWorker(const WorkerFlags& flags);

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_CHECKPOINT_LAUNCHER_H_
