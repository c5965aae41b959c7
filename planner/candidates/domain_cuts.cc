#include "planner/candidates/domain_cuts.h"

#include "planner/digits/domains.h"

namespace reshard::candidates {

std::optional<Cuts> BetweenDomains(const Layout& layout, const std::vector<int64_t>& outer) {
  Cuts out;
  for (const DimLayout& dim : layout.dims()) {
    std::vector<Factor>& factors = out.emplace_back();
    for (const Factor& factor : dim.factors) {
      if (!factor.has_axis()) {
        factors.push_back(factor);
        continue;
      }
      const auto parts = digits::Apart(factor.axis, outer[static_cast<size_t>(factor.axis.axis)]);
      if (!parts) return std::nullopt;
      const bool whole = parts->outside && parts->inside == 1;
      if (whole) {
        factors.push_back(factor);
        continue;
      }
      if (parts->outside) {
        // The chunks of a part of an axis are known where all chunks are alike.
        if (factor.kind != Factor::Kind::kAxis) return std::nullopt;
        factors.push_back(Factor::Along(*parts->outside));
      }
      // Chunks of different sizes, or in another order, are not blocks, so no factor may follow them.
      if (factor.kind != Factor::Kind::kAxis && &factor != &dim.factors.back()) return std::nullopt;
      factors.push_back(Factor::Blocks(parts->inside));
    }
    // Blocks at the end cut nothing.
    while (!factors.empty() && !factors.back().has_axis()) factors.pop_back();
  }
  return out;
}

std::vector<AxisRef> InsideDomains(const Mesh& mesh, const std::vector<int64_t>& outer) {
  std::vector<AxisRef> out;
  for (int a = 0; a < mesh.num_axes(); ++a) {
    const int64_t reached = outer[static_cast<size_t>(a)];
    if (mesh.axis(a).size > reached) out.push_back({a, reached, mesh.axis(a).size / reached});
  }
  return out;
}

}  // namespace reshard::candidates
