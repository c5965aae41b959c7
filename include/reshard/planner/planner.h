// The planner: finds the cheapest plan from one layout to another, and says why it is the cheapest.
//
// Three families of plans compete under one cost model: a direct Exchange, which always meets the per-device lower
// bound; sequences of Slice, AllGather, AllToAll, AllPermute, ReduceScatter and AllReduce, found by exact search over
// layouts made of mesh digits, none larger than max(source, target); and, where some links are slower than others,
// plans that move data within domains, across them and within them again, so that the links between domains carry as
// little as any plan can make them carry.
#ifndef RESHARD_PLANNER_PLANNER_H_
#define RESHARD_PLANNER_PLANNER_H_

#include <vector>

#include "absl/status/statusor.h"
#include "reshard/planner/plan.h"
#include "reshard/planner/problem.h"

namespace reshard {

// The best plan under `options`. Post-conditions:
//  - the first step starts at the source, the last ends at the target, and consecutive steps agree; there are none if
//    the two are equivalent;
//  - every step is legal by itself, uses an allowed op and, in a sequence, stays within max(source, target) bytes;
//  - totals.peak_bytes <= memory_limit_bytes if that is set;
//  - without partial values, on a topology of one level, with objective kBytes and all ops allowed:
//    totals.recv_bytes_max == bounds.recv_bytes_max;
//  - with several levels, objective kBytes and all ops allowed, on evenly divided layouts with room for all axes: the
//    links of the outermost level carry bounds.levels.back().nic_bytes_max;
//  - between meshes, with objective kTime: the plan is at most an eighth slower than the fastest candidate and, among
//    those, has the fewest bytes crossing; with objective kBytes it has the fewest bytes crossing among the candidates
//    that receive as little;
//  - deterministic: equal input gives an equal plan on every machine.
// Errors: InvalidArgument (shapes differ, sizes overflow), Unimplemented (the target is partial over an axis over which
// the source is not), ResourceExhausted (nothing fits the memory limit; the message gives the bytes needed),
// FailedPrecondition (no plan with the allowed ops).
absl::StatusOr<Plan> MakePlan(const Problem& problem, const PlanOptions& options = {});

// The plan above first, then every other candidate that fits the memory limit, cheapest first. For comparisons. Errors
// as above.
absl::StatusOr<std::vector<Plan>> CandidatePlans(const Problem& problem, const PlanOptions& options = {});

}  // namespace reshard

#endif  // RESHARD_PLANNER_PLANNER_H_
