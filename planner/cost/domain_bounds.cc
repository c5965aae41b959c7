#include "planner/cost/domain_bounds.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "planner/cost/slot_bounds.h"
#include "planner/digits/domains.h"
#include "planner/transfers/overlap.h"
#include "reshard/layout/shard_map.h"
#include "status/macros.h"

namespace reshard::cost {
namespace {

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

// The rows of a layout's tables that a domain holds, as one number: domains with equal numbers hold the same.
class DomainRows {
 public:
  // `outer`: per axis, how many domains it leads through.
  DomainRows(const std::vector<DimShards>& dims, const std::vector<int64_t>& outer) : dims_(dims), outer_(outer) {}

  int64_t count() const {
    int64_t out = 1;
    for (const DimShards& dim : dims_) out *= dim.num_rows();
    return out;
  }
  int64_t Row(size_t d, const std::vector<int64_t>& coordinates) const {
    int64_t row = 0;
    for (const AxisRef& ref : dims_[d].digits) {
      const auto a = static_cast<size_t>(ref.axis);
      row = row * ref.size + coordinates[a] / (outer_[a] / (ref.pre * ref.size)) % ref.size;
    }
    return row;
  }
  int64_t Number(const std::vector<int64_t>& coordinates) const {
    int64_t out = 0;
    for (size_t d = 0; d < dims_.size(); ++d) out = out * dims_[d].num_rows() + Row(d, coordinates);
    return out;
  }
  int64_t Elements(const std::vector<int64_t>& coordinates) const {
    int64_t out = 1;
    for (size_t d = 0; d < dims_.size(); ++d) out *= dims_[d].length[static_cast<size_t>(Row(d, coordinates))];
    return out;
  }

 private:
  const std::vector<DimShards>& dims_;
  const std::vector<int64_t>& outer_;
};

}  // namespace

absl::StatusOr<std::optional<DomainBounds>> BoundsOfDomains(const Layout& source, const Layout& target, DType dtype,
                                                            const Topology& topology, int level) {
  const Mesh& mesh = source.mesh();
  if (!(mesh == target.mesh()) || source.partial() || target.partial() || SlotDimOf(source, target)) {
    return std::nullopt;
  }
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
  const DomainRows held(from, outer), needed(to, outer);
  int64_t domains = 1;
  for (int64_t size : outer) domains *= size;
  int64_t recv_most = 0, recv_total = 0;  // elements
  // Per group of domains that hold the same: what they hold and another domain needs.
  std::vector<int64_t> leaves(static_cast<size_t>(held.count()), 0);
  // What domains that need the same hold of it, while all of them are in one group.
  struct Kept {
    int64_t group = -1;  // -1: none seen, -2: they are in several
    int64_t elements = 0;
  };
  std::vector<Kept> kept(static_cast<size_t>(needed.count()));
  std::vector<int64_t> at(outer.size(), 0);  // a domain's coordinates
  for (int64_t i = 0; i < domains; ++i) {
    int64_t rest = i;
    for (size_t a = outer.size(); a-- > 0;) {
      at[a] = rest % outer[a];
      rest /= outer[a];
    }
    int64_t has = 1;
    for (size_t d = 0; d < to.size(); ++d) {
      const transfers::Pair* pair = overlaps[d].Find(held.Row(d, at), needed.Row(d, at));
      has *= pair == nullptr ? 0 : pair->elements;
    }
    const int64_t lacks = needed.Elements(at) - has;
    recv_most = std::max(recv_most, lacks);
    recv_total += lacks;
    const int64_t group = held.Number(at);
    leaves[static_cast<size_t>(group)] = held.Elements(at);
    Kept& of_target = kept[static_cast<size_t>(needed.Number(at))];
    const bool alone = of_target.group == -1 || of_target.group == group;
    of_target = alone ? Kept{group, has} : Kept{-2, 0};
  }
  for (const Kept& one : kept) {
    if (one.group >= 0) leaves[static_cast<size_t>(one.group)] -= one.elements;
  }
  const int64_t element = SizeOf(dtype);
  return DomainBounds{recv_most * element, recv_total * element,
                      *std::max_element(leaves.begin(), leaves.end()) * element, domains / held.count()};
}

}  // namespace reshard::cost
