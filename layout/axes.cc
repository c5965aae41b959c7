#include "layout/axes.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace reshard::layout {
namespace {

// By axis, major first.
void Sort(std::vector<AxisRef>& refs) {
  std::sort(refs.begin(), refs.end(),
            [](const AxisRef& a, const AxisRef& b) { return std::pair(a.axis, a.pre) < std::pair(b.axis, b.pre); });
}

}  // namespace

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

std::vector<AxisRef> DimAxes(const Layout& layout) {
  std::vector<AxisRef> out;
  for (const DimLayout& dim : layout.dims()) {
    const std::vector<AxisRef> axes = dim.Axes();
    out.insert(out.end(), axes.begin(), axes.end());
  }
  return out;
}

std::vector<AxisRef> FreeAxes(const Mesh& mesh, std::vector<AxisRef> used) {
  Sort(used);
  std::vector<AxisRef> free;
  auto next = used.begin();
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    int64_t covered = 1;
    const auto gap = [&](int64_t until) {
      if (until > covered) free.push_back({axis, covered, until / covered});
    };
    // Parts nest: what lies before, between and behind them is free.
    for (; next != used.end() && next->axis == axis; ++next) {
      gap(next->pre);
      covered = std::max(covered, next->pre * next->size);
    }
    gap(mesh.axis(axis).size);
  }
  return free;
}

std::vector<AxisRef> PartialAxes(const Layout& layout) {
  if (!layout.partial()) return {};
  std::vector<AxisRef> refs = layout.partial()->axes;
  Sort(refs);
  return JoinParts(refs);
}

}  // namespace reshard::layout
