#include "planner/digits/domains.h"

#include <algorithm>
#include <set>

namespace reshard::digits {
namespace {

// How many neighboring coordinates of axis `axis` a domain holds together: a divisor of the axis's size.
int64_t InnerByArithmetic(const Mesh& mesh, int axis, int64_t domain) {
  const int64_t stride = mesh.stride(axis), size = mesh.axis(axis).size;
  if (stride * size <= domain) return domain % (stride * size) == 0 ? size : 0;
  if (stride >= domain) return stride % domain == 0 ? 1 : 0;
  return domain % stride == 0 && size % (domain / stride) == 0 ? domain / stride : 0;
}

// The same by looking at every device: the largest divisor of the size such that blocks of that many coordinates never
// leave a domain.
int64_t InnerByLooking(const Mesh& mesh, int axis, int64_t domain) {
  const int64_t stride = mesh.stride(axis), size = mesh.axis(axis).size;
  for (int64_t inner = size; inner > 1; --inner) {
    if (size % inner != 0) continue;
    bool inside = true;
    for (int64_t p = 0; p < mesh.size() && inside; ++p) {
      const int64_t first = p - p / stride % size % inner * stride;
      inside = mesh.Device(p) / domain == mesh.Device(first) / domain;
    }
    if (inside) return inner;
  }
  return 1;
}

bool WithinOne(const Mesh& mesh, int64_t domain) {
  for (int64_t p = 1; p < mesh.size(); ++p) {
    if (mesh.Device(p) / domain != mesh.Device(0) / domain) return false;
  }
  return true;
}

// Per axis, how many neighboring coordinates the domains hold together.
std::optional<std::vector<int64_t>> InnerSizes(const Mesh& mesh, int64_t domain) {
  std::vector<int64_t> inner;
  if (mesh.contiguous() && mesh.first_device() % domain == 0) {
    bool fits = true;
    for (int a = 0; a < mesh.num_axes(); ++a) {
      inner.push_back(InnerByArithmetic(mesh, a, domain));
      fits &= inner.back() > 0;
    }
    if (fits) return inner;
    if (mesh.size() > domain) return std::nullopt;
  }
  inner.clear();
  if (mesh.size() <= domain && WithinOne(mesh, domain)) {
    for (int a = 0; a < mesh.num_axes(); ++a) inner.push_back(mesh.axis(a).size);
    return inner;
  }
  int64_t blocks = 1;
  for (int a = 0; a < mesh.num_axes(); ++a) {
    inner.push_back(InnerByLooking(mesh, a, domain));
    blocks *= mesh.axis(a).size / inner.back();
  }
  // Blocks that the axes keep apart must be different domains.
  std::set<int64_t> domains;
  for (int64_t p = 0; p < mesh.size(); ++p) domains.insert(mesh.Device(p) / domain);
  if (static_cast<int64_t>(domains.size()) != blocks) return std::nullopt;
  return inner;
}

}  // namespace

std::optional<MeshLevels> LevelsOf(const Mesh& mesh, const Topology& topology) {
  MeshLevels out(static_cast<size_t>(mesh.num_axes()));
  // Cuts from the innermost level outwards; a part is what a level adds to the one inside it.
  std::vector<int64_t> reached(out.size(), 1);
  for (int level = 0; level < topology.num_levels(); ++level) {
    std::vector<int64_t> inner;
    if (level + 1 < topology.num_levels()) {
      auto sizes = InnerSizes(mesh, topology.levels[level].devices);
      if (!sizes) return std::nullopt;
      inner = *std::move(sizes);
    } else {
      for (int a = 0; a < mesh.num_axes(); ++a) inner.push_back(mesh.axis(a).size);
    }
    for (size_t a = 0; a < out.size(); ++a) {
      if (inner[a] % reached[a] != 0) return std::nullopt;
      const int64_t size = inner[a] / reached[a];
      if (size > 1) {
        const int64_t pre = mesh.axis(static_cast<int>(a)).size / inner[a];
        out[a].insert(out[a].begin(), LevelPart{{static_cast<int>(a), pre, size}, level});
      }
      reached[a] = inner[a];
    }
  }
  return out;
}

std::vector<int64_t> OuterSizes(const MeshLevels& levels, int level) {
  std::vector<int64_t> outer;
  for (const std::vector<LevelPart>& parts : levels) {
    int64_t& size = outer.emplace_back(1);
    for (const LevelPart& part : parts) size *= part.level > level ? part.ref.size : 1;
  }
  return outer;
}

std::optional<ApartRef> Apart(const AxisRef& ref, int64_t outer) {
  const int64_t end = ref.pre * ref.size;
  if (ref.pre >= outer) {
    if (ref.pre % outer != 0) return std::nullopt;
    return ApartRef{std::nullopt, ref.size};
  }
  const int64_t inside = end > outer ? end / outer : 1;
  if (end > outer ? end % outer != 0 || outer % ref.pre != 0 : outer % end != 0) return std::nullopt;
  return ApartRef{AxisRef{ref.axis, ref.pre, std::min(end, outer) / ref.pre}, inside};
}

std::optional<Layout> DomainLayout(const Layout& layout, const Topology& topology, int level) {
  const Mesh& mesh = layout.mesh();
  const auto levels = LevelsOf(mesh, topology);
  if (!levels || level + 1 >= topology.num_levels()) return std::nullopt;
  const std::vector<int64_t> outer = OuterSizes(*levels, level);
  std::vector<Mesh::Axis> axes;
  std::vector<int> new_axis(outer.size(), -1);
  for (size_t a = 0; a < outer.size(); ++a) {
    if (outer[a] == 1) continue;
    new_axis[a] = static_cast<int>(axes.size());
    axes.push_back({mesh.axis(static_cast<int>(a)).name, outer[a]});
  }
  std::vector<int64_t> ids;
  const int64_t domain = topology.levels[level].devices;
  int64_t count = 1;
  for (const Mesh::Axis& axis : axes) count *= axis.size;
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, position = 0;
    for (size_t a = outer.size(); a-- > 0;) {
      position += rest % outer[a] * (mesh.axis(static_cast<int>(a)).size / outer[a]) * mesh.stride(static_cast<int>(a));
      rest /= outer[a];
    }
    ids.push_back(mesh.Device(position) / domain);
  }
  auto of_domains = Mesh::Create(std::move(axes), std::move(ids));
  if (!of_domains.ok()) return std::nullopt;

  auto split = [&](const AxisRef& ref, std::optional<AxisRef>& outside, int64_t& inside) {
    const auto parts = Apart(ref, outer[ref.axis]);
    if (!parts) return false;
    outside = parts->outside;
    if (outside) outside->axis = new_axis[ref.axis];
    inside = parts->inside;
    return true;
  };
  if (!layout.only_factors()) return std::nullopt;
  std::vector<DimLayout> dims;
  for (const DimLayout& dim : layout.dims()) {
    DimLayout out{dim.size, {}, dim.flattened};
    bool renumbered = false;  // by an axis that became a digit: a reflected axis behind it would turn elsewhere
    auto keep_blocks = [&](int64_t blocks) {
      if (blocks > 1) out.factors.push_back(Factor::Blocks(blocks));
    };
    for (const Factor& factor : dim.factors) {
      if (!factor.has_axis()) {
        out.factors.push_back(factor);
        continue;
      }
      std::optional<AxisRef> outside;
      int64_t inside = 1;
      if (!split(factor.axis, outside, inside)) return std::nullopt;
      const bool whole = outside && inside == 1;
      if (factor.kind == Factor::Kind::kSizes && !whole) return std::nullopt;
      if (factor.kind == Factor::Kind::kReflected && outside && (inside > 1 || renumbered)) return std::nullopt;
      // An axis cut in two would have to cut unevenly sized intervals the way the whole one does.
      if (outside && inside > 1) {
        int64_t parts = 1;
        for (const Factor& other : dim.factors) parts *= other.parts();
        if (dim.size % parts != 0) return std::nullopt;
      }
      if (outside) {
        Factor kept = factor;
        kept.axis = *outside;
        kept.written_as_sub = false;
        out.factors.push_back(kept);
      }
      keep_blocks(inside);
      renumbered |= inside > 1;
    }
    dims.push_back(std::move(out));
  }
  std::optional<Partial> partial;
  if (layout.partial()) {
    Partial outer_partial{layout.partial()->op, {}};
    for (const AxisRef& ref : layout.partial()->axes) {
      std::optional<AxisRef> outside;
      int64_t inside = 1;
      if (!split(ref, outside, inside)) return std::nullopt;
      if (outside) outer_partial.axes.push_back(*outside);
    }
    if (!outer_partial.axes.empty()) partial = std::move(outer_partial);
  }
  auto out = Layout::Create(*std::move(of_domains), std::move(dims), std::move(partial));
  if (!out.ok()) return std::nullopt;
  return *std::move(out);
}

}  // namespace reshard::digits
