// Moves into a slot table in which every index crosses into a domain once.
//
// Going straight to the target brings an index to every device that needs it, also where several devices of one node
// do. Two steps do better: first each index that a node lacks comes to one of the devices that need it, chosen so that
// their links carry about the same, while everything that the node already has moves within it; then the others copy
// theirs from that device. What lies between is the target without what is still to be copied, so that it is never
// larger than the target. A device that needs an index in several slots gets it once, and copies it in a last step.
//
// Example: {ep:4}, nodes of two devices, [<ep>4] to <ep={0|1|0,1|0,1}>:
//   first   <ep={0|1|0|1}>         device 2 gets 0, device 3 gets 1: two indices cross, not four
//   then    <ep={0|1|0-1|0-1}>     devices 2 and 3 copy from each other
#ifndef RESHARD_PLANNER_CANDIDATES_SLOT_TABLES_H_
#define RESHARD_PLANNER_CANDIDATES_SLOT_TABLES_H_

#include "planner/candidates/family.h"

namespace reshard::candidates {

// The direct move where no device needs an index in several slots, and the steps above where they differ from it.
Proposal SlotTables(const Task& task, const SoFar& so_far);

}  // namespace reshard::candidates

#endif  // RESHARD_PLANNER_CANDIDATES_SLOT_TABLES_H_
