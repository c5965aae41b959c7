#include "reshard/planner/traffic.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/layout/axes.h"
#include "planner/search/digits.h"
#include "planner/search/list_traffic.h"
#include "planner/search/mesh_traffic.h"
#include "planner/search/reduce_traffic.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"

namespace reshard {
namespace {

bool SamePending(const Layout& a, const Layout& b) {
  const auto axes = PendingAxes(a);
  return axes == PendingAxes(b) && (axes.empty() || a.pending()->op == b.pending()->op);
}

// A retained pending axis behaves like a dimension of its own in which every device holds its own contribution: a
// contribution may move between replicas, never turn into another one.
DimShards ContributionDim(const std::vector<AxisRef>& axes) {
  DimShards out;
  out.size = 1;
  for (const AxisRef& ref : axes) out.size *= ref.size;
  out.digits = axes;
  for (int64_t row = 0; row < out.size; ++row) {
    out.first.push_back(row);
    out.intervals.push_back({row, row + 1});
    out.length.push_back(1);
  }
  out.first.push_back(out.size);
  return out;
}

std::string Shape(const Layout& layout) { return absl::StrCat("shape of ", ToString(layout)); }

}  // namespace

int64_t Message::elements() const {
  int64_t out = 1;
  for (const auto& dim : runs) {
    int64_t length = 0;
    for (const Run& run : dim) length += run.length;
    out *= length;
  }
  return out;
}

std::vector<DeviceLoad> Traffic::Loads() const {
  std::vector<DeviceLoad> out;
  const auto devices = static_cast<int64_t>(Devices().size());
  out.reserve(static_cast<size_t>(devices));
  for (int64_t i = 0; i < devices; ++i) out.push_back(Load(i));
  return out;
}

Interval AllReduceChunk(int64_t fragment_elements, int64_t group_size, int64_t index) {
  const int64_t chunk = CeilDiv(fragment_elements, group_size);
  const int64_t begin = std::min(fragment_elements, index * chunk);
  return {begin, std::min(fragment_elements, begin + chunk)};
}

absl::StatusOr<std::unique_ptr<Traffic>> Traffic::Create(Op op, const Layout& from, const Layout& to,
                                                         const Topology& topology, int64_t first_holder) {
  if (from.shape() != to.shape()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the layouts have different shapes: ", Shape(from), ", ", Shape(to)));
  }
  auto from_map = ShardMap::Create(from);
  if (!from_map.ok()) return from_map.status();
  auto to_map = ShardMap::Create(to);
  if (!to_map.ok()) return to_map.status();
  std::vector<const DimShards*> from_dims, to_dims;
  for (int d = 0; d < from.rank(); ++d) {
    from_dims.push_back(&from_map->dim(d));
    to_dims.push_back(&to_map->dim(d));
  }
  const bool same_mesh = from.mesh() == to.mesh();
  const auto from_pending = PendingAxes(from);
  const auto to_pending = PendingAxes(to);

  if (op == Op::kReduceScatter || op == Op::kAllReduce) {
    if (!same_mesh) return absl::InvalidArgumentError("a reduction stays within one mesh");
    const auto refinement = search::Refine(from, to);
    if (!refinement) return absl::InvalidArgumentError("the sub-axes of the two layouts have no common digits");
    std::vector<int> reduced;
    for (int digit : refinement->from_pending) {
      const auto& kept = refinement->to_pending;
      if (std::find(kept.begin(), kept.end(), digit) == kept.end()) reduced.push_back(digit);
    }
    bool aligned = topology.num_levels() == 1;
    if (!aligned) {
      const auto levels = search::LevelsOf(from.mesh(), topology);
      aligned = levels && search::Refine(from, to, &*levels).has_value();
    }
    auto out =
        search::ReduceTraffic::Create(op, from.mesh(), *refinement, reduced, from_dims, to_dims, topology, aligned);
    if (!out.ok()) return out.status();
    return std::unique_ptr<Traffic>(*std::move(out));
  }

  DimShards contributions;
  if (!from_pending.empty() || !to_pending.empty()) {
    if (!same_mesh) {
      return absl::UnimplementedError("values that are still partial do not move between meshes; reduce them first");
    }
    if (!SamePending(from, to)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a step that only moves data cannot change pending reductions: ", ToString(from), " -> ", ToString(to)));
    }
    contributions = ContributionDim(from_pending);
    from_dims.push_back(&contributions);
    to_dims.push_back(&contributions);
  }
  std::optional<search::Refinement> refinement;
  if (same_mesh) {
    std::optional<search::MeshLevels> levels;
    if (topology.num_levels() > 1) levels = search::LevelsOf(from.mesh(), topology);
    if (levels) refinement = search::Refine(from, to, &*levels);
    const bool aligned = topology.num_levels() == 1 || refinement.has_value();
    if (!refinement) refinement = search::Refine(from, to);
    if (refinement) {
      auto out =
          search::MeshTraffic::Create(from.mesh(), *refinement, from_dims, to_dims, from.rank(), topology, aligned);
      if (!out.ok()) return out.status();
      if (*out != nullptr) return std::unique_ptr<Traffic>(*std::move(out));
    }
  }
  auto out = search::ListTraffic::Create({&from.mesh(), from_dims}, {&to.mesh(), to_dims}, from.rank(),
                                         refinement ? &*refinement : nullptr, topology, first_holder);
  if (!out.ok()) return out.status();
  return std::unique_ptr<Traffic>(*std::move(out));
}

}  // namespace reshard
