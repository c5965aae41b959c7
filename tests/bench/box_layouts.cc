#include "tests/bench/box_layouts.h"

#include <algorithm>
#include <utility>

namespace reshard::bench {
namespace {

// Puts axis `axis` and those after it everywhere they can go.
void Place(const Mesh& mesh, int axis, const std::vector<std::vector<int>>& dims, std::vector<BoxLayout>& out) {
  if (axis == mesh.num_axes()) {
    BoxLayout box;
    std::vector<DimLayout> cut;
    for (const std::vector<int>& axes : dims) {
      box.default_order = box.default_order && std::is_sorted(axes.begin(), axes.end());
      cut.push_back({mesh.size(), {}});
      for (const int a : axes) {
        Factor factor;
        factor.axis = {a, 1, mesh.axis(a).size};
        cut.back().factors.push_back(factor);
      }
    }
    box.layout = *Layout::Create(mesh, std::move(cut));
    out.push_back(std::move(box));
    return;
  }
  Place(mesh, axis + 1, dims, out);
  for (size_t d = 0; d < dims.size(); ++d) {
    for (size_t at = 0; at <= dims[d].size(); ++at) {
      auto more = dims;
      more[d].insert(more[d].begin() + static_cast<ptrdiff_t>(at), axis);
      Place(mesh, axis + 1, more, out);
    }
  }
}

}  // namespace

std::vector<BoxLayout> BoxLayouts(const Mesh& mesh, int rank) {
  std::vector<BoxLayout> out;
  Place(mesh, 0, std::vector<std::vector<int>>(static_cast<size_t>(rank)), out);
  return out;
}

}  // namespace reshard::bench
