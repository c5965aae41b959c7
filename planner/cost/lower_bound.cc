#include "planner/cost/lower_bound.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "layout/axes.h"
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

int64_t ProductOfUsedAxes(const Layout& layout) {
  int64_t out = 1;
  for (const AxisRef& ref : layout::DimAxes(layout)) out *= ref.size;
  if (layout.partial()) {
    for (const AxisRef& ref : layout.partial()->axes) out *= ref.size;
  }
  return out;
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

// A dimension's table for whole domains: a row is what the devices of a domain hold together. `outer`: per axis, how
// many domains it leads through. nullopt where the border of the domains is not between two digits of the table.
std::optional<DimShards> OfDomains(const DimShards& shards, const std::vector<int64_t>& outer) {
  DimShards out;
  out.size = shards.size;
  std::vector<int64_t> inside;  // per digit of the table, its coordinates within a domain
  int64_t rows = 1;
  for (const AxisRef& ref : shards.digits) {
    const auto parts = digits::Apart(ref, outer[ref.axis]);
    if (!parts) return std::nullopt;
    inside.push_back(parts->inside);
    if (!parts->outside) continue;
    out.digits.push_back(*parts->outside);
    rows *= parts->outside->size;
  }
  std::vector<std::vector<Interval>> held(static_cast<size_t>(rows));
  for (int64_t row = 0; row < shards.num_rows(); ++row) {
    int64_t rest = row, of_domain = 0, weight = 1;
    for (size_t j = shards.digits.size(); j-- > 0;) {
      const int64_t size = shards.digits[j].size;
      of_domain += rest % size / inside[j] * weight;
      weight *= size / inside[j];
      rest /= size;
    }
    for (int64_t i = shards.first[row]; i < shards.first[static_cast<size_t>(row) + 1]; ++i) {
      held[of_domain].push_back(shards.intervals[i]);
    }
  }
  out.first = {0};
  for (std::vector<Interval>& intervals : held) {
    std::sort(intervals.begin(), intervals.end(),
              [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    int64_t length = 0;
    for (const Interval& one : intervals) {
      length += one.length();
      const bool touches =
          static_cast<int64_t>(out.intervals.size()) > out.first.back() && out.intervals.back().end == one.begin;
      if (touches) {
        out.intervals.back().end = one.end;
      } else {
        out.intervals.push_back(one);
      }
    }
    out.length.push_back(length);
    out.first.push_back(static_cast<int64_t>(out.intervals.size()));
  }
  PutInOrder(out);
  return out;
}

// What domains must receive, in elements, whatever the cuts. Within a layout the digits of dimensions differ, so what a
// domain holds is a product as well.
struct DomainsLack {
  int64_t most = 0;
  int64_t total = 0;
};
absl::StatusOr<std::optional<DomainsLack>> WhatDomainsLack(const Layout& source, const Layout& target,
                                                           const Topology& topology, int level) {
  const Mesh& mesh = source.mesh();
  if (!(mesh == target.mesh()) || source.partial() || target.partial()) return std::nullopt;
  const auto levels = digits::LevelsOf(mesh, topology);
  if (!levels) return std::nullopt;
  const std::vector<int64_t> outer = digits::OuterSizes(*levels, level);
  ASSIGN_OR_RETURN(const ShardMap from_map, ShardMap::Create(source));
  ASSIGN_OR_RETURN(const ShardMap to_map, ShardMap::Create(target));
  std::vector<DimShards> from, to;
  std::vector<transfers::DimOverlap> overlaps;
  for (int d = 0; d < source.rank(); ++d) {
    auto of_from = OfDomains(from_map.dim(d), outer), of_to = OfDomains(to_map.dim(d), outer);
    if (!of_from || !of_to) return std::nullopt;
    overlaps.push_back(transfers::Overlap(*of_from, *of_to, transfers::Detail::kSizes));
    from.push_back(*std::move(of_from));
    to.push_back(*std::move(of_to));
  }
  int64_t domains = 1;
  for (int64_t size : outer) domains *= size;
  std::vector<int64_t> at(outer.size(), 0);  // a domain's coordinates
  const auto row_of = [&](const DimShards& shards) {
    int64_t row = 0;
    for (const AxisRef& ref : shards.digits) {
      row = row * ref.size + at[ref.axis] / (outer[ref.axis] / (ref.pre * ref.size)) % ref.size;
    }
    return row;
  };
  DomainsLack out;
  for (int64_t i = 0; i < domains; ++i) {
    int64_t rest = i;
    for (size_t a = outer.size(); a-- > 0;) {
      at[a] = rest % outer[a];
      rest /= outer[a];
    }
    int64_t needed = 1, held = 1;
    for (size_t d = 0; d < to.size(); ++d) {
      const int64_t s = row_of(from[d]), t = row_of(to[d]);
      const transfers::Pair* pair = overlaps[d].Find(s, t);
      needed *= to[d].length[t];
      held *= pair == nullptr ? 0 : pair->elements;
    }
    out.most = std::max(out.most, needed - held);
    out.total += needed - held;
  }
  return out;
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
  int64_t contributions = 1;
  for (const AxisRef& ref : reduced) contributions *= ref.size;
  int64_t kept = 1;  // contributions that the target keeps apart are elements of their own
  if (target.partial()) {
    for (const AxisRef& ref : target.partial()->axes) kept *= ref.size;
  }
  const int64_t needed_by = target.mesh().size() / ProductOfUsedAxes(target);
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

std::vector<LevelBound> LevelBounds(const Layout& source, const Layout& target, DType dtype, const Topology& topology,
                                    const Bounds& whole) {
  std::vector<LevelBound> out;
  if (topology.num_levels() == 1) return out;
  out.push_back({whole.recv_bytes_max, whole.recv_bytes_max, whole.recv_bytes_total});
  for (int level = 1; level < topology.num_levels(); ++level) {
    Bounds bounds;
    const int64_t domain = topology.levels[static_cast<size_t>(level) - 1].devices;
    if (const auto slot_dim = SlotDimOf(source, target)) {
      const auto lack = LackWithSlots(source, target, *slot_dim, [&](int64_t device) { return device / domain; });
      if (!lack.ok()) return {};
      int64_t nics = topology.levels[level].nics;
      if (nics == 0) nics = DevicesOfDomain(source, target, domain);
      const int64_t most = lack->most * SizeOf(dtype);
      out.push_back({most, CeilDiv(most, nics), lack->total * SizeOf(dtype)});
      continue;
    }
    const auto from = digits::DomainLayout(source, topology, level - 1);
    const auto to = digits::DomainLayout(target, topology, level - 1);
    if (from && to) {
      const auto of_layouts = LowerBounds(*from, *to, dtype);
      if (!of_layouts.ok()) return {};
      bounds = *of_layouts;
    } else {
      const auto lack = WhatDomainsLack(source, target, topology, level - 1);
      if (!lack.ok() || !*lack) return {};
      bounds.recv_bytes_max = (*lack)->most * SizeOf(dtype);
      bounds.recv_bytes_total = (*lack)->total * SizeOf(dtype);
    }
    int64_t nics = topology.levels[level].nics;
    if (nics == 0) nics = DevicesOfDomain(source, target, topology.levels[static_cast<size_t>(level) - 1].devices);
    out.push_back({bounds.recv_bytes_max, CeilDiv(bounds.recv_bytes_max, nics), bounds.recv_bytes_total});
  }
  return out;
}

}  // namespace reshard::cost
