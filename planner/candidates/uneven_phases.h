// Plans in three phases, as in three_phase.h, for layouts whose cuts the digits of the mesh do not describe: uneven,
// coprime, with explicit sizes, reflected; and between two meshes.
//
// There digits describe a middle layout; here layouts do. A middle keeps how its end is cut between domains, so that
// nothing leaves a domain on the way from or to it: axes inside the domains become blocks, which keep every part. The
// devices of a domain then share what it holds as a whole, by cutting a dimension, or two, once more along the axes
// inside: behind the other cuts or in front of them. A domain then fetches each element that it lacks once, and its
// devices have equal shares of that up to the rounding of one cut.
#ifndef RESHARD_PLANNER_CANDIDATES_UNEVEN_PHASES_H_
#define RESHARD_PLANNER_CANDIDATES_UNEVEN_PHASES_H_

#include <vector>

#include "planner/candidates/family.h"
#include "reshard/planner/plan.h"

namespace reshard::candidates {

// At most four chains, those that move the fewest bytes through the busiest link between domains first. The search ends
// with the first chain that moves no more than `enough` through it.
// Post-conditions: every chain leads from source to target; no intermediate layout is larger than max(source, target);
// each moves fewer bytes through that link than the direct move. Empty if the topology has one level, the domains are
// not sub-meshes, something is partial, nothing leaves a domain, or no such chain exists.
std::vector<Chain> UnevenPhaseChains(const Layout& source, const Layout& target, DType dtype, const Topology& topology,
                                     int64_t enough, transfers::ShardMaps& maps);

// As a family: where all candidates so far move more between domains than must cross, and not with boxes.
Proposal UnevenPhases(const Task& task, const SoFar& so_far);

}  // namespace reshard::candidates

#endif  // RESHARD_PLANNER_CANDIDATES_UNEVEN_PHASES_H_
