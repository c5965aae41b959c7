// Plans for networks with fast domains: within the domains, across them, within them again.
//
// Let O be the digits of the mesh that lead out of a domain and I those inside one. On the direct way from source to
// target, replicas inside a domain fetch the same bytes over slow links, and some links are idle. Instead take
//   source -> M1 = (O as in the source, I at X)   within the domains
//          -> M2 = (O as in the target, I at X)   across them
//          -> target                              within the domains
// for an assignment X of the digits in I to places that O uses in neither layout. The devices of a domain then hold
// disjoint parts in M1 and M2, so that a domain fetches each byte that it lacks once, and each device fetches its
// share of them from the device at the same place in the other domain (the same rail). No plan can send less across
// domains; X is chosen for the least work within them. With three levels the outer phases are planned in the same way.
//
// Reductions: digits inside a domain that replicate are sliced onto X, then those that are partial are
// reduce-scattered onto X; what is partial between domains is reduce-scattered there, and gathered if the target
// replicates it.
#ifndef RESHARD_PLANNER_CANDIDATES_THREE_PHASE_H_
#define RESHARD_PLANNER_CANDIDATES_THREE_PHASE_H_

#include <vector>

#include "planner/candidates/family.h"
#include "planner/cost/price.h"
#include "reshard/planner/plan.h"

namespace reshard::candidates {

// Chains worth pricing, most promising first, at most a dozen. Post-conditions: every chain leads from source to
// target; no intermediate layout is larger than max(source, target). Empty if the topology has one level, no digit that
// leads out of a domain moves, the domains are not sub-meshes, or the pair does not fit DigitModel.
std::vector<Chain> ThreePhaseChains(const Layout& source, const Layout& target, const Topology& topology);

// As a family: not with boxes, since the parts that X makes need not be contiguous.
Proposal ThreePhase(const Task& task, const SoFar& so_far);

}  // namespace reshard::candidates

#endif  // RESHARD_PLANNER_CANDIDATES_THREE_PHASE_H_
