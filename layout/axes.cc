#include "layout/axes.h"

#include <algorithm>
#include <utility>

namespace reshard::layout {

std::vector<AxisRef> JoinParts(const std::vector<AxisRef>& refs) {
  std::vector<AxisRef> joined;
  for (const AxisRef& ref : refs) {
    if (ref.size == 1) continue;
    if (!joined.empty() && joined.back().axis == ref.axis && joined.back().pre * joined.back().size == ref.pre) {
      joined.back().size *= ref.size;
    } else {
      joined.push_back(ref);
    }
  }
  return joined;
}

std::vector<AxisRef> PartialAxes(const Layout& layout) {
  if (!layout.partial()) return {};
  std::vector<AxisRef> refs = layout.partial()->axes;
  std::sort(refs.begin(), refs.end(),
            [](const AxisRef& a, const AxisRef& b) { return std::pair(a.axis, a.pre) < std::pair(b.axis, b.pre); });
  return JoinParts(refs);
}

}  // namespace reshard::layout
