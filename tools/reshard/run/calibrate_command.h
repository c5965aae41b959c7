// `reshard calibrate`: the request, and what is printed.
#ifndef RESHARD_TOOLS_RESHARD_RUN_CALIBRATE_COMMAND_H_
#define RESHARD_TOOLS_RESHARD_RUN_CALIBRATE_COMMAND_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "reshard/planner/calibrate.h"

namespace reshard::tool {

struct CalibrateCommand {
  std::optional<std::pair<int64_t, int64_t>> nodes;  // and the processes of each; nullopt: as the hosts say
  int64_t bytes = 0;                                 // that each process holds
  int64_t repeat = 20;
  std::string output;  // a file; empty: none
  bool json = false;
};

// Writes the topology to the file, if any, and prints it; --json leaves out the table. Returns the exit code.
int PrintCalibration(const CalibrateCommand& command, const CalibratedJob& job, absl::Span<const Probe> probes,
                     absl::Span<const double> seconds, const Topology& topology);

// Measures between the processes of the MPI program that this process belongs to. Returns the exit code. Like
// RunOverMpi, it becomes the program reshard-mpi.
int CalibrateOverMpi(const CalibrateCommand& command);

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_RUN_CALIBRATE_COMMAND_H_
