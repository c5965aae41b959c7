// Simulates a plan on a network by following every message. This checks the formula used to choose plans (topology.h),
// which looks only at the busiest device of each step.
//
// Model. Each device has one full-duplex port per level of the topology (or shares the level's NICs, see
// Topology::Level); ports are the only resource that messages compete for. A message between devices that meet at level
// L occupies the sender's out-port and the receiver's in-port of L. Messages that flow at the same time share ports
// max-min fairly.
//  - A device enters a step once it has sent and received everything in the steps before: there is no global barrier.
//  - At each level it posts its messages one after another: to the domains after its own, in order, and within each
//    domain to the devices from its own place on. The k-th message (from 1) starts to flow latency * (1 + k) after the
//    sender entered the step, and not before the receiver has entered it too.
//  - An AllReduce is a ReduceScatter and an AllGather of chunks of ceil(elements/n); a step of several rounds is that
//    many steps.
//  - In chunks (chunks.h) a turn takes the place of a step; all that one device sends another in a turn is one message.
//  - Slices, packing and the arithmetic of reductions cost nothing.
// Times are whole nanoseconds, computed in integers, so that every machine prints the same.
#ifndef RESHARD_PLANNER_SIMULATE_H_
#define RESHARD_PLANNER_SIMULATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/planner/plan.h"

namespace reshard {

// What to simulate.
struct SimulateOptions {
  std::optional<Topology> topology;  // used instead of the plan's own
};

// The result of a simulation. Times count from the start of the plan.
struct Simulation {
  // When one step ran. In chunks the times of several overlap.
  struct StepTime {
    int64_t begin_ns = 0;  // when the first device enters the step
    int64_t end_ns = 0;    // when the last device has received everything; the end of the step before if nothing moves
  };
  // The link that carries the most bytes in one direction of one level; ties go to the lowest device.
  struct Link {
    int level = 0;              // index into Topology::levels
    bool out = false;           // true: from the device into the network; false: into the device
    int64_t device = 0;         // lowest id of the devices that use the link
    int64_t bytes = 0;          // carried in that direction over the whole plan
    int64_t busy_ns = 0;        // for how long something flows
    int64_t used_permille = 0;  // bytes as a share of what the link could carry in time_ns, rounded down
  };
  int64_t time_ns = 0;          // when the last device is done
  std::vector<StepTime> steps;  // one per step of the plan
  std::vector<Link> busiest;    // by level, in before out; without levels that nothing crosses
  int64_t messages = 0;         // sent by the plan
  int64_t message_classes = 0;  // indistinguishable messages are followed as one of these
};

// ResourceExhausted: more than 4 million messages, or too many different ones to follow in reasonable time.
// InvalidArgument: the topology is not valid, see Topology::Validate.
absl::StatusOr<Simulation> Simulate(const Plan& plan, const SimulateOptions& options = {});

// A few lines: the time, the steps and the busiest links. Ends with a newline.
std::string SimulationToText(const Plan& plan, const Simulation& simulation);

}  // namespace reshard

#endif  // RESHARD_PLANNER_SIMULATE_H_
