// Moves into a slot table in which every index crosses into a domain once.
//
// Going straight to the target sends an index to every device that needs it, even to several devices of one node. Two
// steps do better: first each index that a node lacks goes to one of the devices that need it, chosen so that their
// links carry about the same, while everything that the node already has moves within it; then the others copy theirs
// from that device. The layout in between is the target without what is still to be copied, so it is never larger than
// the target. A device that needs an index in several slots gets it once, and copies it in a last step.
//
// Example: {ep:4}, nodes of two devices, [<ep>4] to <ep={0|1|0,1|0,1}>:
//   first   <ep={0|1|0|1}>         device 2 gets 0, device 3 gets 1: two indices cross, not four
//   then    <ep={0|1|0-1|0-1}>     devices 2 and 3 copy from each other
#ifndef RESHARD_PLANNER_CANDIDATES_SLOT_TABLES_H_
#define RESHARD_PLANNER_CANDIDATES_SLOT_TABLES_H_

#include "planner/candidates/family.h"

namespace reshard::candidates {

// Proposes the direct move where no device needs an index in several slots, and the steps above where they differ from
// it.
Proposal SlotTables(const Task& task, const SoFar& so_far);

}  // namespace reshard::candidates

#endif  // RESHARD_PLANNER_CANDIDATES_SLOT_TABLES_H_
