// Plans between two meshes in which the source's replicas share the sending and no byte crosses twice.
//
//   source -> M1 = the source, cut further along the axes that replicate it      a slice, no bytes
//          -> M2 = the target, cut further along the axes that replicate it      between the meshes
//          -> target                                                             within the target's mesh
// Every element of M1 and M2 has one holder. So each of the source's replicas sends a part of its own, and what the
// target's replicas have in common crosses once and is gathered there. Partial values are reduced before M1.
#ifndef RESHARD_PLANNER_CANDIDATES_BETWEEN_MESHES_H_
#define RESHARD_PLANNER_CANDIDATES_BETWEEN_MESHES_H_

#include <vector>

#include "planner/candidates/family.h"
#include "planner/cost/price.h"
#include "reshard/planner/plan.h"

namespace reshard::candidates {

// Returns a few such chains that cut different dimensions; none if both layouts have one holder for every element.
// `plan_within` plans the parts within one mesh. Requires different meshes.
std::vector<Chain> CrossOnceChains(const Layout& source, const Layout& target, const PlanWithin& plan_within);

// As a family: not with boxes, since the further cuts need not leave contiguous parts.
Proposal BetweenMeshes(const Task& task, const SoFar& so_far);

// Bytes that cross between meshes in a chain, summed over all receivers.
int64_t CrossingBytes(const cost::PricedChain& chain);

}  // namespace reshard::candidates

#endif  // RESHARD_PLANNER_CANDIDATES_BETWEEN_MESHES_H_
