// Plans for networks with fast islands: within the islands, across them, within them again.
//
// Let O be the digits of the mesh that lead out of an island and I those inside. Instead of source -> target directly,
// where replicas inside an island fetch the same bytes over slow links and some links idle, take
//   source -> M1 = (O as in the source, I at X)   within the islands
//          -> M2 = (O as in the target, I at X)   across them
//          -> target                              within the islands
// for an assignment X of the digits in I to places that O uses in neither. The devices of an island then hold disjoint
// parts in M1 and M2, so that an island fetches each byte it lacks once, each device its share of them, from the device
// with the same place in the other island (the same rail). Across islands this is the least that any plan can do; X is
// searched for the least work within them. The outer phase of an inner level is found in the same way.
//
// Reductions: what is pending inside an island is reduce-scattered onto X first, digits that replicate are sliced onto
// X before that; what is pending between islands is reduce-scattered there and gathered where the target replicates it.
#ifndef RESHARD_PLANNER_SEARCH_THREE_PHASE_H_
#define RESHARD_PLANNER_SEARCH_THREE_PHASE_H_

#include <vector>

#include "planner/search/price.h"
#include "reshard/planner/plan.h"

namespace reshard::search {

// Chains worth pricing, best guess first, at most a dozen. Post-conditions: every chain leads from source to target; no
// layout on the way is larger than max(source, target). Empty when the topology has one level, nothing crosses islands,
// the islands are not sub-meshes, or the pair does not fit DigitModel.
std::vector<std::vector<Hop>> ThreePhaseChains(const Layout& source, const Layout& target, const Topology& topology);

}  // namespace reshard::search

#endif  // RESHARD_PLANNER_SEARCH_THREE_PHASE_H_
