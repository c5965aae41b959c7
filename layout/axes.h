// Lists of axes and their parts, in normal form.
#ifndef RESHARD_LAYOUT_AXES_H_
#define RESHARD_LAYOUT_AXES_H_

#include <vector>

#include "reshard/layout/layout.h"

namespace reshard::layout {

// Joins neighboring parts of one axis and drops parts of size 1: X:(1)2, X:(2)2 of X:4 becomes X.
std::vector<AxisRef> JoinParts(const std::vector<AxisRef>& refs);

// The axes that choose a device's shards, dimension by dimension.
std::vector<AxisRef> DimAxes(const Layout& layout);

// The parts of the mesh's axes that none of `used` has, by axis, major first; none of size 1. A layout's replicas lie
// along those that none of its dimensions has.
std::vector<AxisRef> FreeAxes(const Mesh& mesh, std::vector<AxisRef> used);

// The axes of the partial reduction, whose order means nothing: sorted and joined. Empty when there is none.
std::vector<AxisRef> PartialAxes(const Layout& layout);

}  // namespace reshard::layout

#endif  // RESHARD_LAYOUT_AXES_H_
