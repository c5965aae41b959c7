// Lists of axes and their parts, brought to one way of writing.
#ifndef RESHARD_LAYOUT_AXES_H_
#define RESHARD_LAYOUT_AXES_H_

#include <vector>

#include "reshard/layout/layout.h"

namespace reshard::layout {

// Neighboring parts of one axis become one, parts of size 1 go: X:(1)2, X:(2)2 of X:4 becomes X.
std::vector<AxisRef> JoinParts(const std::vector<AxisRef>& refs);

// The axes of the partial reduction, whose order means nothing: sorted and joined. Empty when there is none.
std::vector<AxisRef> PartialAxes(const Layout& layout);

}  // namespace reshard::layout

#endif  // RESHARD_LAYOUT_AXES_H_
