#include "planner/cost/lower_bound.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "layout/axes.h"
#include "planner/cost/domain_bounds.h"
#include "planner/cost/slot_bounds.h"
#include "planner/digits/digits.h"
#include "planner/digits/domains.h"
#include "planner/transfers/overlap.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/shard_map.h"
#include "reshard/planner/traffic.h"
#include "status/macros.h"

namespace reshard::cost {
namespace {

// Elements that some device both contributes to and needs. Layouts are products, so such devices are found by their
// pair of shards, and every distinct pair counts once.
absl::StatusOr<int64_t> ContributedAndNeeded(const Layout& source, const Layout& target) {
  ASSIGN_OR_RETURN(auto from, ShardMap::Create(source));
  ASSIGN_OR_RETURN(auto to, ShardMap::Create(target));
  std::vector<transfers::DimOverlap> overlaps;
  for (int d = 0; d < source.rank(); ++d)
    overlaps.push_back(transfers::Overlap(from.dim(d), to.dim(d), transfers::Detail::kSizes));
  auto shared = [&](int64_t p, int64_t q) {
    int64_t elements = 1;
    for (int d = 0; d < source.rank() && elements > 0; ++d) {
      const transfers::Pair* pair = overlaps[d].Find(from.Row(p, d), to.Row(q, d));
      elements *= pair == nullptr ? 0 : pair->elements;
    }
    return elements;
  };
  int64_t total = 0;
  if (source.mesh() == target.mesh()) {
    // Devices that differ in a digit which neither the shards nor the kept contributions depend on are one pair.
    if (const auto refinement = digits::Refine(source, target)) {
      std::vector<bool> matters(refinement->digits.size(), false);
      for (const auto* places : {&refinement->from, &refinement->to}) {
        for (const digits::DimCut& place : *places) {
          if (place.digit >= 0) matters[place.digit] = true;
        }
      }
      for (int digit : refinement->to_partial) matters[digit] = true;
      std::vector<int64_t> positions{0};
      for (size_t e = 0; e < matters.size(); ++e) {
        const size_t before = positions.size();
        for (int64_t c = 1; matters[e] && c < refinement->digits[e].size; ++c) {
          for (size_t i = 0; i < before; ++i) positions.push_back(positions[i] + c * refinement->digits[e].stride);
        }
      }
      for (int64_t p : positions) total += shared(p, p);
      return total;
    }
  }
  std::set<std::vector<int64_t>> seen;
  for (int64_t p = 0; p < source.mesh().size(); ++p) {
    const auto q = target.mesh().Position(source.mesh().Device(p));
    if (!q) continue;
    std::vector<int64_t> key;
    for (int d = 0; d < source.rank(); ++d) {
      key.push_back(from.Row(p, d));
      key.push_back(to.Row(*q, d));
    }
    const int64_t elements = shared(p, *q);
    if (target.partial()) {
      for (const AxisRef& ref : target.partial()->axes) key.push_back(target.Coordinate(*q, ref));
    }
    if (elements > 0 && seen.insert(std::move(key)).second) total += elements;
  }
  return total;
}

int64_t Product(const std::vector<AxisRef>& refs) {
  int64_t out = 1;
  for (const AxisRef& ref : refs) out *= ref.size;
  return out;
}

// Whether all shards have the same number of elements: then all domains hold as much as each other, and none has to
// send more than the worst one has to receive.
bool AllShardsAlike(const Layout& layout) {
  return CheckedMul(layout.MaxLocalElements(), Product(layout::DimAxes(layout))) == layout.num_elements();
}

// The most devices of either mesh that one domain has.
int64_t DevicesOfDomain(const Layout& source, const Layout& target, int64_t domain) {
  std::unordered_map<int64_t, int64_t> count;
  int64_t most = 1;
  for (const Layout* layout : {&source, &target}) {
    const Mesh& mesh = layout->mesh();
    if (layout == &target && mesh == source.mesh()) break;
    if (layout == &source && mesh == target.mesh() && mesh.contiguous() && mesh.first_device() % domain == 0) {
      return std::min(domain, mesh.size());
    }
    for (int64_t p = 0; p < mesh.size(); ++p) {
      const int64_t device = mesh.Device(p);
      if (layout == &target && source.mesh().Position(device)) continue;
      most = std::max(most, ++count[device / domain]);
    }
  }
  return most;
}

}  // namespace

std::vector<AxisRef> ReducedAxes(const Layout& source, const Layout& target) {
  std::vector<AxisRef> out;
  const std::vector<AxisRef> kept = layout::PartialAxes(target);
  for (const AxisRef& ref : layout::PartialAxes(source)) {
    // What is left of the axis between the parts that the target keeps, major first.
    int64_t pre = ref.pre;
    const int64_t end = ref.pre * ref.size;
    for (const AxisRef& other : kept) {
      if (other.axis != ref.axis || other.pre < ref.pre || other.pre * other.size > end) continue;
      if (other.pre > pre) out.push_back({ref.axis, pre, other.pre / pre});
      pre = other.pre * other.size;
    }
    if (end > pre) out.push_back({ref.axis, pre, end / pre});
  }
  return out;
}

absl::StatusOr<Bounds> LowerBounds(const Layout& source, const Layout& target, DType dtype) {
  const int64_t element = SizeOf(dtype);
  Bounds out;
  out.intermediate_bytes_max = std::max(source.MaxLocalElements(), target.MaxLocalElements()) * element;
  if (const auto slot_dim = SlotDimOf(source, target)) {
    ASSIGN_OR_RETURN(const Lack lack, LackWithSlots(source, target, *slot_dim, [](int64_t device) { return device; }));
    out.recv_bytes_max = lack.most * element;
    out.recv_bytes_total = lack.total * element;
    return out;
  }
  const auto reduced = ReducedAxes(source, target);
  if (reduced.empty()) {
    ASSIGN_OR_RETURN(auto transfers, TransferSchedule::Create(Op::kExchange, source, target));
    out.recv_bytes_max = transfers->Figures().recv_max * element;
    out.recv_bytes_total = transfers->Figures().recv_total * element;
    return out;
  }
  const int64_t contributions = Product(reduced);
  // Contributions that the target keeps apart are elements of their own.
  const int64_t kept = Product(layout::PartialAxes(target));
  const int64_t needed_by = target.mesh().size() / (Product(layout::DimAxes(target)) * kept);
  ASSIGN_OR_RETURN(auto shared, ContributedAndNeeded(source, target));
  const int64_t total = target.num_elements() * kept * (contributions + needed_by - 1) - shared;
  int64_t devices = source.mesh().size();
  for (int64_t p = 0; p < target.mesh().size() && !(source.mesh() == target.mesh()); ++p) {
    devices += source.mesh().Position(target.mesh().Device(p)) ? 0 : 1;
  }
  out.recv_bytes_total = total * element;
  out.recv_bytes_max = std::max(CeilDiv(total * element, devices), target.MaxLocalElements() * element);
  return out;
}

namespace {

// What domains of the level inside `level` must receive and send. nullopt where that is not known.
std::optional<DomainBounds> Across(const Layout& source, const Layout& target, DType dtype, const Topology& topology,
                                   int level) {
  if (const auto slot_dim = SlotDimOf(source, target)) {
    const int64_t domain = topology.levels[static_cast<size_t>(level) - 1].devices;
    const auto lack = LackWithSlots(source, target, *slot_dim, [&](int64_t device) { return device / domain; });
    if (!lack.ok()) return std::nullopt;
    return DomainBounds{lack->most * SizeOf(dtype), lack->total * SizeOf(dtype)};
  }
  const auto from = digits::DomainLayout(source, topology, level - 1);
  const auto to = digits::DomainLayout(target, topology, level - 1);
  if (!from || !to || !AllShardsAlike(source) || !AllShardsAlike(target)) {
    const auto of_domains = BoundsOfDomains(source, target, dtype, topology, level - 1);
    if (!of_domains.ok()) return std::nullopt;
    if (*of_domains) return *of_domains;
  }
  if (!from || !to) return std::nullopt;
  const auto of_layouts = LowerBounds(*from, *to, dtype);
  if (!of_layouts.ok()) return std::nullopt;
  return DomainBounds{of_layouts->recv_bytes_max, of_layouts->recv_bytes_total};
}

}  // namespace

std::vector<LevelBound> LevelBounds(const Layout& source, const Layout& target, DType dtype, const Topology& topology,
                                    const Bounds& whole) {
  std::vector<LevelBound> out;
  if (topology.num_levels() == 1) return out;
  out.push_back({whole.recv_bytes_max, whole.recv_bytes_max, whole.recv_bytes_max, whole.recv_bytes_total});
  for (int level = 1; level < topology.num_levels(); ++level) {
    const auto across = Across(source, target, dtype, topology, level);
    if (!across) return {};
    int64_t nics = topology.levels[level].nics;
    if (nics == 0) nics = DevicesOfDomain(source, target, topology.levels[static_cast<size_t>(level) - 1].devices);
    const int64_t received = CeilDiv(across->recv_most, nics);
    const int64_t sent = CeilDiv(across->sent_most, across->senders * nics);
    out.push_back({across->recv_most, received, std::max(received, sent), across->recv_total});
  }
  return out;
}

}  // namespace reshard::cost
