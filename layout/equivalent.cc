// Equality of meaning: who holds what, and what is still to be reduced.
#include <algorithm>
#include <optional>
#include <utility>

#include "layout/axes.h"
#include "layout/flatten.h"
#include "reshard/layout/shard_map.h"
#include "status/macros.h"

namespace reshard {
namespace {

// Which rows of two tables of one dimension hold the same elements.
class RowMatch {
 public:
  RowMatch(const DimShards& a, const DimShards& b) : a_(a), b_(b), a_in_b_(static_cast<size_t>(a.num_rows())) {
    if (a.slots || b.slots) return;
    // Rows of one table are disjoint, so the first element of a row tells it from all others.
    std::vector<std::pair<int64_t, int64_t>> b_rows;
    b_rows.reserve(b.num_rows());
    for (int64_t r = 0; r < b.num_rows(); ++r) {
      if (Length(b, r) > 0) b_rows.emplace_back(First(b, r)->begin, r);
    }
    std::sort(b_rows.begin(), b_rows.end());
    for (int64_t r = 0; r < a.num_rows(); ++r) {
      if (Length(a, r) == 0) continue;
      const auto at = std::lower_bound(b_rows.begin(), b_rows.end(), std::pair(First(a, r)->begin, int64_t{0}));
      const bool found = at != b_rows.end() && at->first == First(a, r)->begin && SameIntervals(r, at->second);
      a_in_b_[r] = found ? at->second : -1;
    }
  }

  bool Same(int64_t row_a, int64_t row_b) const {
    if (Length(a_, row_a) == 0 || Length(b_, row_b) == 0) return Length(a_, row_a) == Length(b_, row_b);
    if (a_.slots || b_.slots) return SameIntervals(row_a, row_b);
    return a_in_b_[row_a] == row_b;
  }

 private:
  static int64_t Length(const DimShards& dim, int64_t row) { return dim.length[row]; }
  static std::vector<Interval>::const_iterator First(const DimShards& dim, int64_t row) {
    return dim.intervals.begin() + dim.first[row];
  }
  bool SameIntervals(int64_t row_a, int64_t row_b) const {
    return std::equal(First(a_, row_a), First(a_, row_a + 1), First(b_, row_b), First(b_, row_b + 1));
  }

  const DimShards& a_;
  const DimShards& b_;
  std::vector<int64_t> a_in_b_;
};

// Whether a device whose fragments differ is found at once; most pairs that differ do so nearly everywhere.
bool DifferAtAGlance(const Layout& a, const Layout& b) {
  if (a.MaxLocalElements() != b.MaxLocalElements()) return true;
  // A position whose coordinates are neither all first nor all last: these lie at the ends of most layouts.
  const int64_t p = a.mesh().size() / 3;
  const std::optional<int64_t> q = b.mesh().Position(a.mesh().Device(p));
  if (!q) return false;
  bool differ = false;
  for (int d = 0; d < a.rank(); ++d) {
    const std::vector<Interval> held = a.Intervals(p, d);
    if (held.empty()) return false;  // fragments without elements are equal, whatever the reason
    differ = differ || held != b.Intervals(*q, d);
  }
  return differ;
}

bool SameShards(const ShardMap& a, const ShardMap& b) {
  const bool same_mesh = a.mesh() == b.mesh();
  // Only the dimensions in which some device may differ have to be looked at, device by device.
  std::vector<std::pair<int, RowMatch>> open;
  for (int d = 0; d < a.rank(); ++d) {
    // Joining parts of an axis does not change the numbers of the rows.
    const bool same_rows = same_mesh && layout::JoinParts(a.dim(d).digits) == layout::JoinParts(b.dim(d).digits);
    if (same_rows && a.dim(d).first == b.dim(d).first && a.dim(d).intervals == b.dim(d).intervals) continue;
    open.emplace_back(d, RowMatch(a.dim(d), b.dim(d)));
  }
  if (same_mesh && open.empty()) return true;

  for (int64_t p = 0; p < a.mesh().size(); ++p) {
    const std::optional<int64_t> q = same_mesh ? p : b.mesh().Position(a.mesh().Device(p));
    if (!q) {
      if (a.LocalElements(p) != 0) return false;
      continue;
    }
    const bool same = std::all_of(open.begin(), open.end(), [&](const auto& dim) {
      return dim.second.Same(a.Row(p, dim.first), b.Row(*q, dim.first));
    });
    // Two empty fragments are equal, whatever their rows.
    if (!same && (a.LocalElements(p) != 0 || b.LocalElements(*q) != 0)) return false;
  }
  if (same_mesh) return true;
  for (int64_t q = 0; q < b.mesh().size(); ++q) {
    if (!a.mesh().Position(b.mesh().Device(q)) && b.LocalElements(q) != 0) return false;
  }
  return true;
}

absl::StatusOr<bool> EquivalentOverSameDims(const Layout& a, const Layout& b) {
  const std::vector<AxisRef> partial_a = layout::PartialAxes(a);
  const std::vector<AxisRef> partial_b = layout::PartialAxes(b);
  if (!partial_a.empty() || !partial_b.empty()) {
    if (!(a.mesh() == b.mesh()) || partial_a != partial_b || a.partial()->op != b.partial()->op) return false;
  }

  if (DifferAtAGlance(a, b)) return false;
  ASSIGN_OR_RETURN(const ShardMap map_a, ShardMap::Create(a));
  ASSIGN_OR_RETURN(const ShardMap map_b, ShardMap::Create(b));
  return SameShards(map_a, map_b);
}

}  // namespace

absl::StatusOr<bool> Equivalent(const Layout& a, const Layout& b) {
  if (a == b) return true;
  if (a.shape() != b.shape()) return false;
  if (a.flattens() || b.flattens()) {
    ASSIGN_OR_RETURN(const auto ends, layout::OverCommonDims(a, b));
    return EquivalentOverSameDims(ends.first, ends.second);
  }
  return EquivalentOverSameDims(a, b);
}

}  // namespace reshard
