// Plans between two meshes in which the replicas of the source share the sending and no byte crosses twice.
//
//   source -> M1 = the source, cut further along the axes that replicate it      a slice, no bytes
//          -> M2 = the target, cut further along the axes that replicate it      between the meshes
//          -> target                                                             within the target's mesh
// Every element of M1 and M2 has one holder, so each of the source's replicas sends its own part, and what the target's
// replicas share crosses once and is gathered there. What is pending in the source is reduced on the way to M1.
#ifndef RESHARD_PLANNER_SEARCH_BETWEEN_MESHES_H_
#define RESHARD_PLANNER_SEARCH_BETWEEN_MESHES_H_

#include <vector>

#include "planner/search/price.h"
#include "reshard/planner/plan.h"

namespace reshard::search {

// A handful of such chains with different dimensions cut; none when both layouts have one holder for every element.
// Ways within one mesh are what MakePlan finds for it. Requires different meshes, no pending axes in the target.
std::vector<std::vector<Hop>> CrossOnceChains(const Layout& source, const Layout& target, DType dtype,
                                              const PlanOptions& options);

// Bytes that cross between meshes in a chain, received by all devices together.
int64_t CrossingBytes(const PricedChain& chain);

}  // namespace reshard::search

#endif  // RESHARD_PLANNER_SEARCH_BETWEEN_MESHES_H_
