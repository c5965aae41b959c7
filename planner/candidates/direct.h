// One step: every device gets exactly what it lacks.
#ifndef RESHARD_PLANNER_CANDIDATES_DIRECT_H_
#define RESHARD_PLANNER_CANDIDATES_DIRECT_H_

#include "planner/candidates/family.h"

namespace reshard::candidates {

// The direct move; empty where something is to be reduced, which no move does. With boxes an AllToAll is what Shardy
// and arXiv 2112.01075 mean by it: axes that move from one dimension to another. Other patterns that happen to exchange
// equal parts do not count, so that within the digit model only the search decides.
Proposal Direct(const Task& task, const SoFar& so_far);

}  // namespace reshard::candidates

#endif  // RESHARD_PLANNER_CANDIDATES_DIRECT_H_
