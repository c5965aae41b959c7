// What reports call the levels of a topology.
#ifndef RESHARD_PLANNER_REPORT_LEVELS_H_
#define RESHARD_PLANNER_REPORT_LEVELS_H_

#include <cstddef>
#include <string>

#include "reshard/planner/topology.h"

namespace reshard::report {

// "within domains of 8", "between domains of 8", "between domains of 8 within those of 64". Requires a level that the
// topology has.
std::string LevelName(const Topology& topology, size_t level);

}  // namespace reshard::report

#endif  // RESHARD_PLANNER_REPORT_LEVELS_H_
