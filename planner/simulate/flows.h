// The messages of a plan as flows between devices.
#ifndef RESHARD_PLANNER_SIMULATE_FLOWS_H_
#define RESHARD_PLANNER_SIMULATE_FLOWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/planner/plan.h"

namespace reshard::simulate {

// One message. Devices are indices into FlowList::devices.
struct Flow {
  int32_t phase = 0;
  int32_t sender = 0;
  int32_t receiver = 0;
  int32_t level = 0;
  int32_t turn = 0;  // how many messages of the phase and level the sender posts before this one
  int64_t bytes = 0;
};

struct FlowList {
  std::vector<int64_t> devices;  // ids, ascending
  // What a device does at once: a step, a part of one (the halves of an AllReduce, rounds), or what several steps do
  // with a chunk each. The steps are first .. last.
  struct Phase {
    int32_t first = 0;
    int32_t last = 0;
  };
  std::vector<Phase> phases;
  std::vector<Flow> flows;  // by phase
};

// ResourceExhausted above 4 million flows.
absl::StatusOr<FlowList> ListFlows(const Plan& plan, const Topology& topology);

}  // namespace reshard::simulate

#endif  // RESHARD_PLANNER_SIMULATE_FLOWS_H_
