// Sequences for pairs outside the digit model: uneven cuts, reflected axes, explicit sizes, sizes without a common
// factor, different meshes. Not exact: a small family of natural intermediates, in which every step is priced by its
// real transfers.
#ifndef RESHARD_PLANNER_CANDIDATES_FALLBACK_H_
#define RESHARD_PLANNER_CANDIDATES_FALLBACK_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "planner/candidates/family.h"
#include "planner/cost/price.h"
#include "reshard/planner/plan.h"

namespace reshard::candidates {

// True if every device's part of every dimension is one interval: no block factor in front of an axis.
bool IsBox(const Layout& layout);

// Chains that reduce what is not partial in the target and then move: all-reduce in place, reduce-scatter along each
// dimension, and the same after slicing along the axes that replicate the source. Empty if nothing is to be reduced.
std::vector<Chain> ReductionChains(const Layout& source, const Layout& target);

// The cheapest chain of allowed steps over layouts whose dimensions are leading factors of the source's followed by
// leading factors of the target's, or vice versa. Empty if there is none within max(source, target) whose objective is
// below `less_than`.
Chain MovementChain(const Layout& source, const Layout& target, DType dtype, const PlanOptions& options,
                    int64_t less_than = std::numeric_limits<int64_t>::max());

// As families: MovementChain where the digit model does not serve, and ReductionChains. Beside a direct move that is
// allowed, MovementChain looks for less time (two steps with few peers instead of one with many), on up to 511 devices.
Proposal Fallback(const Task& task, const SoFar& so_far);
Proposal Reductions(const Task& task, const SoFar& so_far);

}  // namespace reshard::candidates

#endif  // RESHARD_PLANNER_CANDIDATES_FALLBACK_H_
