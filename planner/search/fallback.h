// Sequences for pairs outside the digit model: uneven cuts, reflected axes, explicit sizes, sizes without a common
// factor, other meshes. Not exact: a small family of natural intermediates, every step priced by its real traffic.
#ifndef RESHARD_PLANNER_SEARCH_FALLBACK_H_
#define RESHARD_PLANNER_SEARCH_FALLBACK_H_

#include <vector>

#include "planner/search/price.h"
#include "reshard/planner/plan.h"

namespace reshard::search {

// Every device's part of every dimension is one interval: no integer digit in front of an axis.
bool IsBox(const Layout& layout);

// Ways to reduce what the target does not keep pending and then move: all-reduce in place, reduce-scatter along each
// dimension, the same after slicing by the axes that replicate the source. Empty when nothing is reduced.
std::vector<std::vector<Hop>> ReductionChains(const Layout& source, const Layout& target);

// The cheapest chain of allowed steps over layouts whose dimensions are leading factors of the source's followed by
// leading factors of the target's, or the other way round. Empty when there is none within max(source, target).
std::vector<Hop> MovementChain(const Layout& source, const Layout& target, DType dtype, const PlanOptions& options);

}  // namespace reshard::search

#endif  // RESHARD_PLANNER_SEARCH_FALLBACK_H_
