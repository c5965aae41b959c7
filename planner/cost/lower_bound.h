// Bounds that hold for any algorithm, computed from the two layouts alone.
#ifndef RESHARD_PLANNER_COST_LOWER_BOUND_H_
#define RESHARD_PLANNER_COST_LOWER_BOUND_H_

#include "absl/status/statusor.h"
#include "reshard/planner/plan.h"

namespace reshard::cost {

// Without partial values a device must receive |target box minus source box|. An element with P contributions that |T|
// devices need takes at least P + |T| - 1 - [a contributor is a target] transmissions; the worst device receives at
// least an even share of them all, and at least one whole target box.
absl::StatusOr<Bounds> LowerBounds(const Layout& source, const Layout& target, DType dtype);

// What has to cross each level: the bounds above between the layouts of domains (see DomainLayout). Empty if the
// topology has one level or its domains are not sub-meshes. `whole` is LowerBounds of the same pair.
std::vector<LevelBound> LevelBounds(const Layout& source, const Layout& target, DType dtype, const Topology& topology,
                                    const Bounds& whole);

// The axes over which `source` is partial and `target` is not.
std::vector<AxisRef> ReducedAxes(const Layout& source, const Layout& target);

}  // namespace reshard::cost

#endif  // RESHARD_PLANNER_COST_LOWER_BOUND_H_
