// How long a plan takes on a network, by following every message: a check of the formula that chooses plans
// (topology.h), which only looks at the busiest device of each step.
//
// Model. Each device has one full-duplex port a level of the topology (or shares the level's NICs, see
// Topology::Level); inside a level nothing but the ports is ever short. A message between devices that meet at level L
// occupies the sender's out-port and the receiver's in-port of L. Messages that flow at the same time share ports
// max-min fairly.
//  - A device enters a step when it has sent and received all of the steps before: there is no global barrier.
//  - At each level it posts its messages one after another, to the islands after its own in turn, and in each to the
//    devices from its own place on: the k-th (from 1) flows from latency * (1 + k) after the sender entered the step,
//    and not before the receiver entered the step too.
//  - An AllReduce is a ReduceScatter and an AllGather of ceil chunks; a step of several rounds is that many steps.
//  - Slices, packing and the arithmetic of reductions cost nothing.
// Times are whole nanoseconds and come from integers alone: every machine prints the same.
#ifndef RESHARD_PLANNER_SIMULATE_H_
#define RESHARD_PLANNER_SIMULATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/planner/plan.h"

namespace reshard {

struct SimulateOptions {
  std::optional<Topology> topology;  // instead of the plan's own
};

struct Simulation {
  struct StepTime {
    int64_t begin_ns = 0;  // the first device enters the step
    int64_t end_ns = 0;    // the last device has all of it; that of the step before where nothing moves
  };
  // The link of a level and direction that carries the most bytes; the lowest device of several.
  struct Link {
    int level = 0;
    bool out = false;    // from the device into the network
    int64_t device = 0;  // the first one that uses the link
    int64_t bytes = 0;
    int64_t busy_ns = 0;        // something flows
    int64_t used_permille = 0;  // bytes against what the link could carry in time_ns, rounded down
  };
  int64_t time_ns = 0;
  std::vector<StepTime> steps;  // one a step of the plan
  std::vector<Link> busiest;    // by level, in before out; levels that nothing crosses left out
  int64_t messages = 0;
  int64_t message_classes = 0;  // messages that cannot be told apart are followed once
};

// ResourceExhausted above 4 million messages, or where too many of them differ to be followed in reasonable time.
// InvalidArgument where the topology's levels make no sense.
absl::StatusOr<Simulation> Simulate(const Plan& plan, const SimulateOptions& options = {});

// A few lines: time, steps, links. Ends with a newline.
std::string SimulationToText(const Plan& plan, const Simulation& simulation);

}  // namespace reshard

#endif  // RESHARD_PLANNER_SIMULATE_H_
