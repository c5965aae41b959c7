#include "planner/transfers/overlap.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "reshard/layout/checked.h"

namespace reshard::transfers {
namespace {

// One interval of one row, with where it starts in the row's dense local order.
struct RowInterval {
  Interval interval;
  int64_t row;
  int64_t local;
};

// In ascending order of the tensor.
std::vector<RowInterval> Sorted(const DimShards& shards) {
  std::vector<RowInterval> pieces;
  pieces.reserve(shards.intervals.size());
  if (shards.ascending.empty()) {
    for (int64_t row = 0; row < shards.num_rows(); ++row) {
      int64_t local = 0;
      for (int64_t i = shards.first[row]; i < shards.first[static_cast<size_t>(row) + 1]; ++i) {
        pieces.push_back({shards.intervals[i], row, local});
        local += shards.intervals[i].length();
      }
    }
    return pieces;
  }
  std::vector<int64_t> local(shards.length.size(), 0);  // of the next interval of each row
  for (const DimShards::IntervalOfRow& one : shards.ascending) {
    const Interval& interval = shards.intervals[one.interval];
    pieces.push_back({interval, one.row, local[one.row]});
    local[one.row] += interval.length();
  }
  return pieces;
}

// What two rows share in one stretch.
struct Segment {
  int32_t from_row;
  int32_t to_row;
  Run run;
};

// Sorts numbers of segments by the segments' rows. Stable, since segments come in ascending order of the tensor, which
// those of a pair keep. Numbers, since a segment is ten times as large.
void SortByRow(int32_t Segment::*row, int64_t rows, const std::vector<Segment>& segments, std::vector<int32_t>& order) {
  const auto row_of = [&](int32_t one) { return static_cast<size_t>(segments[static_cast<size_t>(one)].*row); };
  const auto before = [&](int32_t a, int32_t b) { return row_of(a) < row_of(b); };
  if (std::is_sorted(order.begin(), order.end(), before)) return;
  std::vector<int32_t> next(static_cast<size_t>(rows) + 1, 0);
  for (int32_t one : order) ++next[row_of(one) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<int32_t> sorted(order.size());
  for (int32_t one : order) sorted[static_cast<size_t>(next[row_of(one)]++)] = one;
  order = std::move(sorted);
}

// The row of each interval, where no row has several and rows are in ascending order: any nest of plain axes.
class RowsInOrder {
 public:
  // nullopt where they are not so.
  static std::optional<RowsInOrder> Of(const DimShards& shards) {
    RowsInOrder out;
    const size_t rows = shards.length.size();
    // Mostly no row is empty: then each is its interval's number.
    const bool all = shards.intervals.size() == rows;
    if (!all) out.rows_.reserve(shards.intervals.size());
    for (size_t row = 0; row < rows; ++row) {
      const int64_t begin = shards.first[row], end = shards.first[row + 1];
      if (end - begin > 1) return std::nullopt;
      if (begin == end) continue;
      if (begin > 0 && shards.intervals[begin].begin < shards.intervals[static_cast<size_t>(begin) - 1].begin) {
        return std::nullopt;
      }
      if (!all) out.rows_.push_back(static_cast<int64_t>(row));
    }
    return out;
  }
  int64_t operator[](size_t interval) const { return rows_.empty() ? static_cast<int64_t>(interval) : rows_[interval]; }

 private:
  std::vector<int64_t> rows_;  // empty if all rows have one
};

// If rows are in order on both sides, the stretches they share come in the order of the pairs, one each.
void OverlapInOrder(const DimShards& from, const RowsInOrder& from_rows, const DimShards& to,
                    const RowsInOrder& to_rows, Detail detail, const std::optional<OwnRows>& own, DimOverlap& out) {
  const std::vector<Interval>& a = from.intervals;
  const std::vector<Interval>& b = to.intervals;
  const bool runs = detail == Detail::kRuns;
  if (!own) out.pairs.reserve(a.size() + b.size());
  if (!own && runs) out.runs.reserve(a.size() + b.size());
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const int64_t begin = std::max(a[i].begin, b[j].begin);
    const int64_t length = std::min(a[i].end, b[j].end) - begin;
    const int64_t row = from_rows[i], other = to_rows[j];
    if (length > 0 && (!own || own->Concern(row, other))) {
      out.pairs.push_back({static_cast<int32_t>(row), static_cast<int32_t>(other), length,
                           static_cast<int32_t>(out.runs.size()), runs ? 1 : 0,
                           SpreadOf(true, length, from.length[row]), SpreadOf(true, length, to.length[other])});
      if (runs) out.runs.push_back({begin - a[i].begin, begin - b[j].begin, begin, length});
      ++out.first_of_to[static_cast<size_t>(other) + 1];
    }
    (a[i].end < b[j].end) ? ++i : ++j;
  }
}

// Any rows.
void OverlapSorted(const DimShards& from, const DimShards& to, Detail detail, const std::optional<OwnRows>& own,
                   DimOverlap& out) {
  const std::vector<RowInterval> a = Sorted(from);
  const std::vector<RowInterval> b = Sorted(to);
  std::vector<Segment> segments;
  if (!own) segments.reserve(a.size() + b.size());
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const int64_t begin = std::max(a[i].interval.begin, b[j].interval.begin);
    const int64_t end = std::min(a[i].interval.end, b[j].interval.end);
    if (begin < end && (!own || own->Concern(a[i].row, b[j].row))) {
      segments.push_back({static_cast<int32_t>(a[i].row), static_cast<int32_t>(b[j].row),
                          Run{a[i].local + begin - a[i].interval.begin, b[j].local + begin - b[j].interval.begin, begin,
                              end - begin}});
    }
    (a[i].interval.end < b[j].interval.end) ? ++i : ++j;
  }
  std::vector<int32_t> order(segments.size());
  std::iota(order.begin(), order.end(), 0);
  SortByRow(&Segment::from_row, out.from_rows, segments, order);
  SortByRow(&Segment::to_row, out.to_rows, segments, order);

  const auto at = [&](size_t i) -> const Segment& { return segments[static_cast<size_t>(order[i])]; };
  for (size_t i = 0; i < segments.size();) {
    Pair pair;
    pair.from_row = at(i).from_row;
    pair.to_row = at(i).to_row;
    pair.first_run = static_cast<int32_t>(out.runs.size());
    bool contiguous_from = true;
    bool contiguous_to = true;
    std::optional<Run> last;
    for (; i < segments.size() && at(i).from_row == pair.from_row && at(i).to_row == pair.to_row; ++i) {
      const Run& run = at(i).run;
      pair.elements += run.length;
      if (last) {
        const bool touches_from = last->from + last->length == run.from;
        const bool touches_to = last->to + last->length == run.to;
        contiguous_from &= touches_from;
        contiguous_to &= touches_to;
        if (touches_from && touches_to && last->global + last->length == run.global) {
          last->length += run.length;
          continue;
        }
        if (detail == Detail::kRuns) out.runs.push_back(*last);
      }
      last = run;
    }
    if (detail == Detail::kRuns) out.runs.push_back(*last);
    pair.num_runs = static_cast<int32_t>(out.runs.size()) - pair.first_run;
    pair.in_from = SpreadOf(contiguous_from, pair.elements, from.length[pair.from_row]);
    pair.in_to = SpreadOf(contiguous_to, pair.elements, to.length[pair.to_row]);
    out.pairs.push_back(pair);
    ++out.first_of_to[static_cast<size_t>(pair.to_row) + 1];
  }
}

}  // namespace

int32_t SumsOnce::NumberOf(const SpreadSums& sums) {
  // Neighbors are mostly alike.
  if (last_ >= 0 && sums_[static_cast<size_t>(last_)] == sums) return last_;
  const auto [at, fresh] = numbers_.emplace(sums, size());
  if (fresh) sums_.push_back(sums);
  return last_ = at->second;
}

int32_t SumsOnce::NumberOfOne(Spread spread, int64_t elements) {
  One& one = ones_[static_cast<uint64_t>(elements) % ones_.size()];
  if (one.elements == elements && one.spread == spread) return one.number;
  SpreadSums sums;
  sums.Add(spread, elements);
  one = {spread, elements, NumberOf(sums)};
  return one.number;
}

const Pair* DimOverlap::Find(int64_t from_row, int64_t to_row) const {
  auto begin = pairs.begin() + first_of_to[to_row];
  auto end = pairs.begin() + first_of_to[static_cast<size_t>(to_row) + 1];
  if (end - begin == from_rows) return &begin[from_row];
  auto it = std::lower_bound(begin, end, from_row, [](const Pair& p, int64_t row) { return p.from_row < row; });
  return it != end && it->from_row == from_row ? &*it : nullptr;
}

DimOverlap Overlap(const DimShards& from, const DimShards& to, Detail detail, const std::optional<OwnRows>& own) {
  DimOverlap out;
  out.from_rows = from.num_rows();
  out.to_rows = to.num_rows();
  out.first_of_to.assign(static_cast<size_t>(out.to_rows) + 1, 0);
  bool in_order = false;
  if (const auto from_rows = RowsInOrder::Of(from)) {
    const auto to_rows = RowsInOrder::Of(to);
    in_order = to_rows.has_value();
    if (in_order) OverlapInOrder(from, *from_rows, to, *to_rows, detail, own, out);
  }
  if (!in_order) OverlapSorted(from, to, detail, own, out);
  for (size_t t = 0; t < static_cast<size_t>(out.to_rows); ++t) out.first_of_to[t + 1] += out.first_of_to[t];
  // While pairs are placed, first_of_from[s + 1] is where the next one of row s goes.
  out.first_of_from.assign(static_cast<size_t>(out.from_rows) + 2, 0);
  for (const Pair& pair : out.pairs) ++out.first_of_from[static_cast<size_t>(pair.from_row) + 2];
  std::partial_sum(out.first_of_from.begin(), out.first_of_from.end(), out.first_of_from.begin());
  out.by_from.resize(out.pairs.size());
  for (size_t i = 0; i < out.pairs.size(); ++i) {
    out.by_from[out.first_of_from[static_cast<size_t>(out.pairs[i].from_row) + 1]++] = static_cast<int32_t>(i);
  }
  out.first_of_from.pop_back();
  return out;
}

std::vector<int32_t> RowsOf(const Mesh& mesh, const DimShards& shards) {
  std::vector<int32_t> rows(static_cast<size_t>(mesh.size()), 0);
  for (const AxisRef& ref : shards.digits) {
    const int64_t stride = mesh.stride(ref.axis) * (mesh.axis(ref.axis).size / (ref.pre * ref.size));
    for (size_t p = 0; p < rows.size(); ++p) {
      rows[p] = static_cast<int32_t>(rows[p] * ref.size + static_cast<int64_t>(p) / stride % ref.size);
    }
  }
  return rows;
}

Spread SpreadOf(bool contiguous, int64_t elements, int64_t row_length) {
  if (elements == row_length) return elements == 1 ? Spread::kWholeOne : Spread::kWhole;
  if (elements == 1) return Spread::kOne;
  return contiguous ? Spread::kRun : Spread::kScattered;
}

void Contiguity::AddDim(const SpreadSums& sums) {
  auto scaled = [](const Sum& base, int64_t elements, int64_t count) {
    return Sum{base.elements * elements, base.count * count};
  };
  auto at = [&](Spread s) { return static_cast<size_t>(s); };
  const auto& e = sums.elements;
  const auto& c = sums.count;
  const Sum run_from_whole =
      scaled(whole_, e[at(Spread::kOne)] + e[at(Spread::kRun)], c[at(Spread::kOne)] + c[at(Spread::kRun)]);
  const Sum run_from_run =
      scaled(run_, e[at(Spread::kWholeOne)] + e[at(Spread::kOne)], c[at(Spread::kWholeOne)] + c[at(Spread::kOne)]);
  run_ = {run_from_whole.elements + run_from_run.elements, run_from_whole.count + run_from_run.count};
  whole_ = scaled(whole_, e[at(Spread::kWholeOne)] + e[at(Spread::kWhole)],
                  c[at(Spread::kWholeOne)] + c[at(Spread::kWhole)]);
  all_ = scaled(all_, sums.total_elements(), sums.total_count());
}

}  // namespace reshard::transfers
