// Measures a network: what to run on it, and the topology that the times imply. The caller runs the probes: the command
// over MPI, and the Python package over process groups.
#ifndef RESHARD_PLANNER_CALIBRATE_H_
#define RESHARD_PLANNER_CALIBRATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/planner/problem.h"
#include "reshard/planner/topology.h"

namespace reshard {

// The ranks of a job: node k has the device ids k * devices .. (k + 1) * devices - 1.
struct CalibratedJob {
  int64_t nodes = 1;
  int64_t devices = 1;                // per node
  int64_t bytes = int64_t{64} << 20;  // held by each device in the bandwidth probes
};

// An all-to-all that crosses one level and no other, all devices at once; or, with no peers, a call that moves nothing.
struct Probe {
  Problem problem;
  bool is_large = false;    // of CalibratedJob::bytes, for bandwidth; else of a few bytes, for latency
  bool is_between = false;  // between nodes; else inside them
  int64_t peers = 0;        // that a device sends to
  int64_t received = 0;     // bytes that a device receives
};

// What to measure: a call that moves nothing, then for each level a small and a large probe, inside nodes first. The
// first measures what any call costs once, however many messages it has: the agreement of the ranks. InvalidArgument:
// fewer than two devices in all, numbers below 1, or too many devices or bytes.
absl::StatusOr<std::vector<Probe>> CalibrationProbes(const CalibratedJob& job);

// The topology in which the probes take these times, each less the first (topology.h says how long a step takes).
// `seconds`: one per probe, in the same order, of the slowest rank. Post-condition: given the times of a topology's own
// formula, all later by the same amount, returns that topology within rounding. InvalidArgument: a different number of
// times, or one that is not positive.
absl::StatusOr<Topology> FitTopology(const CalibratedJob& job, absl::Span<const double> seconds);

// As Topology::FromJson reads it, with a newline at the end.
std::string TopologyToJson(const Topology& topology);

}  // namespace reshard

#endif  // RESHARD_PLANNER_CALIBRATE_H_
