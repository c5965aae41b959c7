#include "reshard/layout/shard_map.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "layout/cut.h"
#include "layout/flatten.h"
#include "status/macros.h"

namespace reshard {
namespace {

// More non-empty intervals than this in one dimension are refused.
constexpr int64_t kMaxTotalIntervals = int64_t{1} << 24;

// Walks the non-empty cells of a dimension, in ascending order, with the row that holds each. Cells of one row may
// touch. The work is proportional to the non-empty cells, not to rows times intervals.
class CellWalk {
 public:
  struct Cell {
    Interval interval;
    int64_t row;
  };

  explicit CellWalk(const DimLayout& dim) : factors_(layout::EffectiveFactors(dim)) {
    weights_.resize(factors_.size());
    int64_t intervals = 1;
    for (size_t k = factors_.size(); k-- > 0;) {
      weights_[k] = num_rows_;
      if (factors_[k]->has_axis()) {
        num_rows_ *= factors_[k]->parts();
      } else {
        one_cell_a_row_ = false;
        intervals *= factors_[k]->parts();
      }
    }
    may_be_too_many_ = intervals > kMaxTotalIntervals / num_rows_;
    most_cells_ = may_be_too_many_ ? kMaxTotalIntervals : intervals * num_rows_;
  }

  int64_t num_rows() const { return num_rows_; }
  // There are not more; mostly as many.
  int64_t most_cells() const { return most_cells_; }
  // True when no integer digit takes part: then rows come in ascending order, one cell each.
  bool one_cell_a_row() const { return one_cell_a_row_; }

  // Calls visit(cell) for every cell; false when there are more than kMaxTotalIntervals. Where there may be more, they
  // are counted first, so that nothing is stored in vain.
  template <typename Visit>
  bool Run(int64_t size, const Visit& visit) {
    if (size == 0) return true;
    const auto count_only = [](const Cell&) {};
    if (may_be_too_many_ && !Cut(0, {0, size}, false, 0, count_only)) return false;
    cells_ = 0;
    return Cut(0, {0, size}, false, 0, visit);
  }

 private:
  // The depth is at most 42: every factor here has two parts or more, and both row numbers and intervals are limited.
  template <typename Visit>
  bool Cut(size_t k, const Interval& whole, bool odd, int64_t row, const Visit& visit) {
    if (k == factors_.size()) {
      visit(Cell{whole, row});
      return ++cells_ <= kMaxTotalIntervals;
    }
    const Factor& factor = *factors_[k];
    const int64_t parts = factor.parts();
    const int64_t chunk = CeilDiv(whole.length(), parts);
    int64_t begin = whole.begin;
    for (int64_t j = 0; j < parts && begin < whole.end; ++j) {
      const int64_t left = whole.end - begin;
      const int64_t length = factor.kind == Factor::Kind::kSizes ? factor.sizes[j] : std::min(chunk, left);
      if (length == 0) continue;
      const Interval part{begin, begin + length};
      begin = part.end;
      bool ok = true;
      if (factor.has_axis()) {
        const bool mirrored = factor.kind == Factor::Kind::kReflected && odd;
        ok = Cut(k + 1, part, odd, row + (mirrored ? parts - 1 - j : j) * weights_[k], visit);
      } else {
        ok = Cut(k + 1, part, layout::OddAfterDigit(odd, parts, j), row, visit);
      }
      if (!ok) return false;
    }
    return true;
  }

  std::vector<const Factor*> factors_;
  std::vector<int64_t> weights_;  // of the coordinate along factor k within the row number
  int64_t num_rows_ = 1;
  int64_t most_cells_ = 1;
  int64_t cells_ = 0;
  bool may_be_too_many_ = false;
  bool one_cell_a_row_ = true;
};

// Rows of one cell at most, in ascending order: nothing to sort or merge.
bool FillInOrder(CellWalk& walk, DimShards& out) {
  out.intervals.reserve(std::min(out.size, walk.num_rows()));
  int64_t next_row = 0;
  const bool complete = walk.Run(out.size, [&](const CellWalk::Cell& cell) {
    for (; next_row <= cell.row; ++next_row) {
      out.first[next_row] = static_cast<int64_t>(out.intervals.size());
    }
    out.intervals.push_back(cell.interval);
    out.length[cell.row] = cell.interval.length();
  });
  for (; next_row <= walk.num_rows(); ++next_row) {
    out.first[next_row] = static_cast<int64_t>(out.intervals.size());
  }
  return complete;
}

// Any rows: collect the cells, merge those that touch within a row, then sort by row, keeping the ascending order.
bool FillSorted(CellWalk& walk, DimShards& out) {
  std::vector<CellWalk::Cell> cells;
  constexpr int64_t kMostReserved = int64_t{1} << 20;
  cells.reserve(std::min({out.size, walk.most_cells(), kMostReserved}));
  std::vector<int64_t> last_cell(static_cast<size_t>(walk.num_rows()), -1);
  const bool complete = walk.Run(out.size, [&](const CellWalk::Cell& cell) {
    const auto row = static_cast<size_t>(cell.row);
    out.length[row] += cell.interval.length();
    if (last_cell[row] >= 0) {
      Interval& last = cells[last_cell[row]].interval;
      if (last.end == cell.interval.begin) {
        last.end = cell.interval.end;
        return;
      }
    }
    last_cell[row] = static_cast<int64_t>(cells.size());
    ++out.first[row + 1];
    cells.push_back(cell);
  });
  if (!complete) return false;
  for (size_t row = 1; row < out.first.size(); ++row) out.first[row] += out.first[row - 1];
  std::vector<int64_t>& cursor = last_cell;
  std::copy(out.first.begin(), out.first.end() - 1, cursor.begin());
  out.intervals.resize(cells.size());
  out.ascending.resize(cells.size());
  bool in_order = true;
  for (size_t i = 0; i < cells.size(); ++i) {
    const int64_t at = cursor[cells[i].row]++;
    in_order &= at == static_cast<int64_t>(i);
    out.intervals[at] = cells[i].interval;
    out.ascending[i] = {static_cast<int32_t>(at), static_cast<int32_t>(cells[i].row)};
  }
  if (in_order) out.ascending.clear();
  return true;
}

// A row per coordinate, as the table says.
DimShards EnumerateSlots(const Factor& table, DimShards out) {
  out.slots = true;
  out.first.push_back(0);
  for (const std::vector<Interval>& runs : table.slots) {
    out.length.push_back(layout::NumSlots(runs));
    out.intervals.insert(out.intervals.end(), runs.begin(), runs.end());
    out.first.push_back(static_cast<int64_t>(out.intervals.size()));
  }
  return out;
}

absl::Status TooManyIntervals(const DimLayout& dim) {
  return absl::ResourceExhaustedError(absl::StrCat("a dimension of ", dim.size, " elements is cut into more than ",
                                                   kMaxTotalIntervals, " intervals over all devices"));
}

absl::StatusOr<DimShards> EnumerateDim(const DimLayout& dim);

// A row per row of each flattened dimension and of the factors in front, which cut what such rows hold together.
absl::StatusOr<DimShards> EnumerateFlattened(const DimLayout& dim, DimShards out) {
  std::vector<DimShards> inside;
  for (const DimLayout& inner : dim.flattened) {
    ASSIGN_OR_RETURN(DimShards shards, EnumerateDim(inner));
    inside.push_back(std::move(shards));
  }
  const auto row_of = [](const DimShards& shards, int64_t row) {
    const auto first = static_cast<size_t>(shards.first[row]), end = static_cast<size_t>(shards.first[row + 1]);
    return absl::MakeConstSpan(shards.intervals).subspan(first, end - first);
  };
  out.first.push_back(0);
  std::vector<int64_t> at(inside.size(), 0);  // a row of each
  std::map<int64_t, DimShards> cut;           // by the length of what the factors in front cut
  while (true) {
    layout::FlattenedRuns runs;
    for (size_t i = 0; i < inside.size(); ++i) runs.Append(inside[i].size, row_of(inside[i], at[i]));
    auto found = cut.find(runs.length());
    if (found == cut.end()) {
      ASSIGN_OR_RETURN(DimShards shards, EnumerateDim({runs.length(), dim.factors}));
      found = cut.emplace(runs.length(), std::move(shards)).first;
    }
    const DimShards& outer = found->second;
    for (int64_t row = 0; row < outer.num_rows(); ++row) {
      const std::vector<Interval> held = runs.At(row_of(outer, row));
      out.intervals.insert(out.intervals.end(), held.begin(), held.end());
      out.length.push_back(outer.length[row]);
      out.first.push_back(static_cast<int64_t>(out.intervals.size()));
    }
    if (static_cast<int64_t>(out.intervals.size()) > kMaxTotalIntervals) return TooManyIntervals(dim);
    size_t i = at.size();
    while (i > 0 && ++at[i - 1] == inside[i - 1].num_rows()) at[--i] = 0;
    if (i == 0) break;
  }
  PutInOrder(out);
  return out;
}

absl::StatusOr<DimShards> EnumerateDim(const DimLayout& dim) {
  DimShards out;
  out.size = dim.size;
  out.digits = dim.Axes();
  if (const Factor* table = layout::SlotTable(dim)) return EnumerateSlots(*table, std::move(out));
  if (dim.cut_before_flattened()) return EnumerateFlattened(dim, std::move(out));
  CellWalk walk(dim);
  out.first.resize(static_cast<size_t>(walk.num_rows()) + 1);
  out.length.resize(walk.num_rows());
  const bool complete = walk.one_cell_a_row() ? FillInOrder(walk, out) : FillSorted(walk, out);
  if (!complete) return TooManyIntervals(dim);
  return out;
}

}  // namespace

// Cuts spread intervals evenly, so that a first pass by a multiple of that leaves little to do.
void PutInOrder(DimShards& shards) {
  using IntervalOfRow = DimShards::IntervalOfRow;
  const auto begin_of = [&](const IntervalOfRow& one) { return shards.intervals[one.interval].begin; };
  std::vector<IntervalOfRow> all;
  all.reserve(shards.intervals.size());
  for (int64_t row = 0; row < shards.num_rows(); ++row) {
    for (int64_t i = shards.first[row]; i < shards.first[static_cast<size_t>(row) + 1]; ++i) {
      all.push_back({static_cast<int32_t>(i), static_cast<int32_t>(row)});
    }
  }
  const auto before = [&](const IntervalOfRow& a, const IntervalOfRow& b) { return begin_of(a) < begin_of(b); };
  shards.ascending.clear();
  if (std::is_sorted(all.begin(), all.end(), before)) return;
  const int64_t even = CeilDiv(shards.size, static_cast<int64_t>(all.size()));
  const auto bucket = [&](const IntervalOfRow& one) { return static_cast<size_t>(begin_of(one) / even); };
  std::vector<size_t> next(all.size() + 1, 0);
  for (const IntervalOfRow& one : all) ++next[bucket(one) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  shards.ascending.resize(all.size());
  for (const IntervalOfRow& one : all) shards.ascending[next[bucket(one)]++] = one;
  for (auto begin = shards.ascending.begin(); begin != shards.ascending.end();) {
    auto end = std::next(begin);
    while (end != shards.ascending.end() && bucket(*end) == bucket(*begin)) ++end;
    std::sort(begin, end, before);
    begin = end;
  }
}

absl::StatusOr<ShardMap> ShardMap::Create(const Layout& layout) {
  ShardMap map;
  map.mesh_ = layout.mesh();
  map.dims_.reserve(layout.dims().size());
  for (const DimLayout& dim : layout.dims()) {
    ASSIGN_OR_RETURN(DimShards shards, EnumerateDim(dim));
    map.dims_.push_back(std::move(shards));
  }
  return map;
}

int64_t ShardMap::Row(int64_t position, int d) const {
  int64_t row = 0;
  for (const AxisRef& ref : dim(d).digits) {
    row = row * ref.size + layout::CoordinateAlong(mesh_, position, ref);
  }
  return row;
}

int64_t ShardMap::LocalElements(int64_t position) const {
  // Cannot overflow: at most the number of elements, or of those of the non-empty dimensions.
  int64_t elements = 1;
  for (int d = 0; d < rank(); ++d) elements *= dim(d).length[Row(position, d)];
  return elements;
}

}  // namespace reshard
