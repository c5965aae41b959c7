// Flows that cannot be told apart, followed as one.
//
// Devices get colours, refined until any two devices of a colour have the same messages, in the same turns, with
// devices of the same colours, and share their links with devices of the same colours. Fair shares are found by looking
// at ports alone, so flows of the same size and turn between the same colours always have the same rate: on a regular
// mesh a million messages become a thousand classes or fewer.
#ifndef RESHARD_PLANNER_SIMULATE_CLASSES_H_
#define RESHARD_PLANNER_SIMULATE_CLASSES_H_

#include <cstdint>
#include <vector>

#include "planner/simulate/flows.h"
#include "reshard/planner/topology.h"

namespace reshard::simulate {

struct FlowClass {
  int32_t phase = 0;
  int32_t level = 0;
  int32_t turn = 0;
  int32_t sender = 0;  // colours
  int32_t receiver = 0;
  int64_t bytes = 0;
  int32_t out_port = 0;  // port classes
  int32_t in_port = 0;
  int64_t out_flows = 0;  // flows of this class through one such port
  int64_t in_flows = 0;
};

struct PortClass {
  int32_t level = 0;
  bool out = false;
  int64_t device = 0;  // id of the first device that uses one of these ports
  int64_t bytes = 0;   // through one of them
};

struct ClassedFlows {
  int32_t num_colours = 0;
  int32_t num_phases = 0;
  std::vector<FlowClass> flows;
  std::vector<PortClass> ports;
};

ClassedFlows Classify(const FlowList& list, const Topology& topology);

}  // namespace reshard::simulate

#endif  // RESHARD_PLANNER_SIMULATE_CLASSES_H_
