// Follows classes of flows through time.
#ifndef RESHARD_PLANNER_SIMULATE_FLUID_H_
#define RESHARD_PLANNER_SIMULATE_FLUID_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/simulate/classes.h"
#include "reshard/planner/topology.h"

namespace reshard::simulate {

struct PhaseTime {
  int64_t begin_ns = 0;  // the first device enters
  int64_t end_ns = 0;    // the last flow ends
};

struct FluidTimes {
  std::vector<PhaseTime> phases;
  std::vector<int64_t> port_busy_ns;  // by port class: while something flows
};

// ResourceExhausted when it would take too long.
absl::StatusOr<FluidTimes> Follow(const ClassedFlows& flows, const Topology& topology);

}  // namespace reshard::simulate

#endif  // RESHARD_PLANNER_SIMULATE_FLUID_H_
