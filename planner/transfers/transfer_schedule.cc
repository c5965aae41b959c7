#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "layout/axes.h"
#include "layout/flatten.h"
#include "planner/digits/digits.h"
#include "planner/transfers/list_transfers.h"
#include "planner/transfers/mesh_transfers.h"
#include "planner/transfers/reduce_transfers.h"
#include "planner/transfers/shard_maps.h"
#include "planner/transfers/slot_transfers.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"
#include "reshard/planner/traffic.h"
#include "status/macros.h"

namespace reshard {
namespace {

bool SamePartial(const Layout& a, const Layout& b) {
  const auto axes = layout::PartialAxes(a);
  return axes == layout::PartialAxes(b) && (axes.empty() || a.partial()->op == b.partial()->op);
}

// A retained partial axis behaves like a dimension of its own in which every device holds its own contribution: a
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

absl::Status SameShape(const Layout& from, const Layout& to) {
  const auto& a = from.dims();
  const auto& b = to.dims();
  const bool same = std::equal(a.begin(), a.end(), b.begin(), b.end(),
                               [](const DimLayout& x, const DimLayout& y) { return x.size == y.size; });
  if (same) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the layouts have different shapes: ", Shape(from), ", ", Shape(to)));
}

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

std::vector<DeviceLoad> TransferSchedule::Loads() const {
  std::vector<DeviceLoad> out;
  const auto devices = static_cast<int64_t>(Devices().size());
  out.reserve(devices);
  for (int64_t i = 0; i < devices; ++i) out.push_back(Load(i));
  return out;
}

Interval AllReduceChunk(int64_t fragment_elements, int64_t group_size, int64_t index) {
  const int64_t chunk = CeilDiv(fragment_elements, group_size);
  const int64_t begin = std::min(fragment_elements, index * chunk);
  return {begin, std::min(fragment_elements, begin + chunk)};
}

namespace transfers {
namespace {

// Holders looked at, for all messages together, up to which messages are listed and balanced one by one where the
// nearest holders would overload a sender. Above, whole digits of holders take turns, which costs the same whatever the
// number of messages.
constexpr int64_t kMostLooks = int64_t{1} << 20;

// See CreateTransfers and CreateMessages.
absl::StatusOr<std::unique_ptr<TransferSchedule>> MakeSchedule(Op op, const MappedLayout& mapped_from,
                                                               const MappedLayout& mapped_to, const Topology& topology,
                                                               int64_t first_holder, Asked asked,
                                                               std::optional<int64_t> only = std::nullopt) {
  const Layout& from = mapped_from.layout;
  const Layout& to = mapped_to.layout;
  RETURN_IF_ERROR(SameShape(from, to));
  std::vector<const DimShards*> from_dims, to_dims;
  for (int d = 0; d < from.rank(); ++d) {
    from_dims.push_back(&mapped_from.map.dim(d));
    to_dims.push_back(&mapped_to.map.dim(d));
  }
  ASSIGN_OR_RETURN(const std::optional<int> slot_dim, SlotDim(from, to));
  if (slot_dim) {
    ASSIGN_OR_RETURN(auto out, SlotTransfers::Create({&from.mesh(), from_dims}, {&to.mesh(), to_dims}, *slot_dim,
                                                     topology, first_holder, asked));
    return std::unique_ptr<TransferSchedule>(std::move(out));
  }
  const bool same_mesh = from.mesh() == to.mesh();
  const auto from_partial = layout::PartialAxes(from);
  const auto to_partial = layout::PartialAxes(to);

  if (Reduces(op)) {
    if (!same_mesh) return absl::InvalidArgumentError("a reduction stays within one mesh");
    const auto refinement = digits::Refine(from, to);
    if (!refinement) return absl::InvalidArgumentError("the sub-axes of the two layouts have no common digits");
    std::vector<int> reduced;
    for (int digit : refinement->from_partial) {
      const auto& kept = refinement->to_partial;
      if (std::find(kept.begin(), kept.end(), digit) == kept.end()) reduced.push_back(digit);
    }
    bool aligned = topology.num_levels() == 1;
    if (!aligned) {
      const auto levels = digits::LevelsOf(from.mesh(), topology);
      aligned = levels && digits::Refine(from, to, &*levels).has_value();
    }
    ASSIGN_OR_RETURN(auto out, ReduceTransfers::Create(op, from.mesh(), *refinement, reduced, from_dims, to_dims,
                                                       topology, aligned));
    return std::unique_ptr<TransferSchedule>(std::move(out));
  }

  DimShards contributions;
  if (!from_partial.empty() || !to_partial.empty()) {
    if (!same_mesh) {
      return absl::UnimplementedError("values that are still partial do not move between meshes; reduce them first");
    }
    if (!SamePartial(from, to)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a step that only moves data cannot change partial values: ", ToString(from), " -> ", ToString(to)));
    }
    contributions = ContributionDim(from_partial);
    from_dims.push_back(&contributions);
    to_dims.push_back(&contributions);
  }
  std::optional<digits::Refinement> refinement;
  if (same_mesh) {
    std::optional<digits::MeshLevels> levels;
    if (topology.num_levels() > 1) levels = digits::LevelsOf(from.mesh(), topology);
    if (levels) refinement = digits::Refine(from, to, &*levels);
    const bool aligned = topology.num_levels() == 1 || refinement.has_value();
    if (!refinement) refinement = digits::Refine(from, to);
    if (refinement) {
      using Senders = MeshTransfers::Senders;
      // Runs of one device are looked for by themselves.
      const Detail detail = asked == Asked::kLoads || only ? Detail::kSizes : Detail::kRuns;
      const auto create = [&](const digits::Refinement& by, int num_levels, Senders senders,
                              const MeshTransfers* like = nullptr) {
        return MeshTransfers::Create(from.mesh(), by, from_dims, to_dims, from.rank(), num_levels, senders, detail,
                                     like);
      };
      std::unique_ptr<MeshTransfers> prepared;
      const auto finished = [&](std::unique_ptr<MeshTransfers> one,
                                bool by_levels) -> absl::StatusOr<std::unique_ptr<TransferSchedule>> {
        if (only) one->TakeRuns(*prepared);
        if (!by_levels && asked != Asked::kMessages) RETURN_IF_ERROR(one->CountLevels(topology));
        return one;
      };
      const int num_levels = aligned ? topology.num_levels() : 1;
      if (asked == Asked::kMessages) {
        // A device that is not in the mesh has no messages, whatever is looked at.
        std::optional<int64_t> position;
        if (only) position = from.mesh().Position(*only).value_or(0);
        prepared = MeshTransfers::Prepare(from.mesh(), *refinement, from_dims, to_dims, from.rank(), num_levels,
                                          Senders::kByPlace, Detail::kRuns, position);
        // Nothing is to be balanced where every shard has one holder, or every receiver is one.
        if (prepared->IsHeldOnce() || op == Op::kSlice) return prepared;
      }
      auto out = create(*refinement, num_levels, Senders::kByPlace, only ? nullptr : prepared.get());
      if (op == Op::kAllPermute && topology.num_levels() > 1 &&
          (!out->balanced() || out->Classify() != Op::kAllPermute)) {
        // The nearest holders make no permutation of it; without regard to distance there may be one.
        auto permuting = create(*refinement, 1, Senders::kByPlace, out.get());
        if (permuting->balanced() && permuting->Classify() == Op::kAllPermute) {
          return finished(std::move(permuting), false);
        }
      }
      if (out->balanced()) return finished(std::move(out), aligned);
      if (aligned && out->Figures().messages_total > kMostLooks / out->holders()) {
        const auto finer = digits::Refine(from, to, levels ? &*levels : nullptr, out->CutsToSpread());
        return finished(create(finer ? *finer : *refinement, topology.num_levels(), Senders::kAll, out.get()), true);
      }
    }
  }
  ASSIGN_OR_RETURN(auto out,
                   ListTransfers::Create({&from.mesh(), from_dims}, {&to.mesh(), to_dims}, from.rank(),
                                         refinement ? &*refinement : nullptr, topology, first_holder, asked, only));
  return std::unique_ptr<TransferSchedule>(std::move(out));
}

// The same for layouts that may flatten different dimensions.
absl::StatusOr<std::unique_ptr<TransferSchedule>> ScheduleOf(Op op, const Layout& from, const Layout& to,
                                                             const Topology& topology, int64_t first_holder,
                                                             ShardMaps& maps, Asked asked,
                                                             std::optional<int64_t> only = std::nullopt) {
  ASSIGN_OR_RETURN(const auto ends, layout::OverCommonDims(from, to));
  RETURN_IF_ERROR(SameShape(ends.first, ends.second));
  ASSIGN_OR_RETURN(const auto before, maps.Of(ends.first));
  ASSIGN_OR_RETURN(const auto after, maps.Of(ends.second));
  return MakeSchedule(op, {ends.first, *before}, {ends.second, *after}, topology, first_holder, asked, only);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TransferSchedule>> CreateTransfers(Op op, const MappedLayout& from,
                                                                  const MappedLayout& to, const Topology& topology,
                                                                  Asked asked, int64_t first_holder) {
  return MakeSchedule(op, from, to, topology, first_holder, asked);
}

absl::StatusOr<std::unique_ptr<MessageSchedule>> CreateMessages(const Step& step, const Topology& topology,
                                                                ShardMaps& maps, std::optional<int64_t> only) {
  return ScheduleOf(step.op, step.from, step.to, topology, step.first_holder, maps, Asked::kMessages, only);
}

absl::StatusOr<std::unique_ptr<TransferSchedule>> CreateLoads(const Step& step, const Topology& topology,
                                                              ShardMaps& maps) {
  return ScheduleOf(step.op, step.from, step.to, topology, step.first_holder, maps, Asked::kLoads);
}

std::optional<BusiestLoads> FindBusiest(const MappedLayout& from, const MappedLayout& to, const Topology& topology) {
  constexpr int64_t kLookedAt = 512;
  const Mesh& mesh = from.layout.mesh();
  if (!(mesh == to.layout.mesh()) || from.layout.partial() || to.layout.partial()) return std::nullopt;
  const auto levels = digits::LevelsOf(mesh, topology);
  if (!levels) return std::nullopt;
  const auto refinement = digits::Refine(from.layout, to.layout, &*levels);
  if (!refinement) return std::nullopt;
  std::vector<const DimShards*> from_dims, to_dims;
  for (int d = 0; d < from.layout.rank(); ++d) {
    from_dims.push_back(&from.map.dim(d));
    to_dims.push_back(&to.map.dim(d));
  }
  const auto refine = [&](const std::vector<AxisRef>& more) {
    return digits::Refine(from.layout, to.layout, &*levels, more);
  };
  return MeshTransfers::BusiestOfSome(mesh, *refinement, refine, from_dims, to_dims, topology.num_levels(), kLookedAt);
}

}  // namespace transfers

absl::StatusOr<std::unique_ptr<TransferSchedule>> TransferSchedule::Create(Op op, const Layout& from, const Layout& to,
                                                                           const Topology& topology,
                                                                           int64_t first_holder) {
  transfers::ShardMaps maps({});
  return transfers::ScheduleOf(op, from, to, topology, first_holder, maps, transfers::Asked::kAll);
}

}  // namespace reshard
