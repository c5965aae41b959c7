// The planner: the cheapest way from one layout to another, with its reasons.
//
// Three families compete under one cost model: a direct Exchange, which always meets the per-device lower bound;
// sequences of Slice, AllGather, AllToAll, AllPermute, ReduceScatter and AllReduce found by exact search over
// digit-level layouts, none larger than max(source, target); and, where some links are slower than others, ways within
// islands, across them and within them again, whose links between islands carry the least that any plan can do with.
#ifndef RESHARD_PLANNER_PLANNER_H_
#define RESHARD_PLANNER_PLANNER_H_

#include <vector>

#include "absl/status/statusor.h"
#include "reshard/planner/plan.h"

namespace reshard {

// The best plan under `options`. Post-conditions:
//  - the first step starts at `source`, the last ends at `target`, neighbours agree; equivalent ends give no steps;
//  - every step is legal by itself, uses an allowed op and, in a sequence, stays within max(source, target) bytes;
//  - totals.peak_bytes <= memory_limit_bytes when that is given;
//  - without pending reductions, on a topology of one level, objective kBytes and all ops:
//    totals.recv_bytes_max == bounds.recv_bytes_max;
//  - with levels, objective kBytes and all ops, on evenly divided layouts with room for all axes: the links of the
//    outermost level carry bounds.levels.back().nic_recv_bytes_max;
//  - between meshes, objective kTime: at most an eighth slower than the fastest candidate, and of those as near as that
//    the one with the fewest bytes crossing; objective kBytes: the fewest bytes crossing of those that receive the same;
//  - deterministic: equal input gives an equal plan on every machine.
// Errors: InvalidArgument (shapes differ, sizes overflow), Unimplemented (a pending axis in the target that the source
// does not have), ResourceExhausted (nothing fits the memory limit; the message has the bytes needed),
// FailedPrecondition (no plan with the allowed ops).
absl::StatusOr<Plan> MakePlan(const Layout& source, const Layout& target, DType dtype, const PlanOptions& options = {});

// The plan above first, then every other one that competed and fits, cheapest first. For comparisons.
absl::StatusOr<std::vector<Plan>> CandidatePlans(const Layout& source, const Layout& target, DType dtype,
                                                 const PlanOptions& options = {});

}  // namespace reshard

#endif  // RESHARD_PLANNER_PLANNER_H_
