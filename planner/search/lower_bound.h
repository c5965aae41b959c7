// Bounds that hold for any algorithm, computed from the two layouts alone.
#ifndef RESHARD_PLANNER_SEARCH_LOWER_BOUND_H_
#define RESHARD_PLANNER_SEARCH_LOWER_BOUND_H_

#include "absl/status/statusor.h"
#include "reshard/planner/plan.h"

namespace reshard::search {

// Without pending reductions a device must receive |target box minus source box|. With P contributions to an element
// that |T| devices need, at least P + |T| - 1 - [a contributor is a target] transmissions carry it; the worst device
// receives at least its share of them all, and at least one whole target box.
absl::StatusOr<Bounds> LowerBounds(const Layout& source, const Layout& target, DType dtype);

// What has to cross each level: the bounds above between layouts of islands (see IslandLayout). Empty where the
// topology has one level or its islands are not sub-meshes. `whole`: LowerBounds of the same pair.
std::vector<LevelBound> LevelBounds(const Layout& source, const Layout& target, DType dtype, const Topology& topology,
                                    const Bounds& whole);

// The pending axes of `source` that `target` does not keep.
std::vector<AxisRef> ReducedAxes(const Layout& source, const Layout& target);
// `layout` with the pending axes given (none: no pending reduction left).
Layout WithPending(const Layout& layout, const std::vector<AxisRef>& axes);

}  // namespace reshard::search

#endif  // RESHARD_PLANNER_SEARCH_LOWER_BOUND_H_
