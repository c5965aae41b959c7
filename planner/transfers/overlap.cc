#include "planner/transfers/overlap.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "reshard/layout/checked.h"

namespace reshard::transfers {
namespace {

// The intervals of all rows in ascending order of the tensor, one after the other, each with its row and with where it
// starts in the row's dense local order.
class Ascending {
 public:
  explicit Ascending(const DimShards& shards) : shards_(shards), local_(shards.length.size()) { Find(); }
  bool done() const { return at_ == shards_.intervals.size(); }
  // Requires !done(), as all that follow.
  const Interval& interval() const { return shards_.intervals[interval_]; }
  int64_t row() const { return row_; }
  int64_t local() const { return local_[row_]; }
  void Next() {
    local_[row_] += interval().length();
    ++at_;
    Find();
  }

 private:
  void Find() {
    if (done()) return;
    if (!shards_.ascending.empty()) {
      interval_ = shards_.ascending[at_].interval;
      row_ = shards_.ascending[at_].row;
      return;
    }
    interval_ = static_cast<int64_t>(at_);
    while (shards_.first[row_ + 1] <= interval_) ++row_;
  }

  const DimShards& shards_;
  std::vector<int64_t> local_;  // of the next interval of each row
  size_t at_ = 0;
  int64_t interval_ = 0, row_ = 0;
};

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
                    const RowsInOrder& to_rows, Detail detail, const SomeRows* some, DimOverlap& out) {
  const std::vector<Interval>& a = from.intervals;
  const std::vector<Interval>& b = to.intervals;
  const bool runs = detail == Detail::kRuns;
  if (some == nullptr) out.pairs.reserve(a.size() + b.size());
  if (some == nullptr && runs) out.runs.reserve(a.size() + b.size());
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const int64_t begin = std::max(a[i].begin, b[j].begin);
    const int64_t length = std::min(a[i].end, b[j].end) - begin;
    const int64_t row = from_rows[i], other = to_rows[j];
    if (length > 0 && (some == nullptr || some->Concern(row, other))) {
      out.pairs.push_back({static_cast<int32_t>(row), static_cast<int32_t>(other), length,
                           static_cast<int32_t>(out.runs.size()), runs ? 1 : 0,
                           SpreadOf(true, length, from.length[row]), SpreadOf(true, length, to.length[other])});
      if (runs) out.runs.push_back({begin - a[i].begin, begin - b[j].begin, begin, length});
      ++out.first_of_to[static_cast<size_t>(other) + 1];
    }
    (a[i].end < b[j].end) ? ++i : ++j;
  }
}

// The intervals of all rows in ascending order of the tensor, by number.
class Numbered {
 public:
  explicit Numbered(const DimShards& shards) : shards_(shards) {}
  size_t size() const { return shards_.intervals.size(); }
  const Interval& interval(size_t number) const { return shards_.intervals[at(number)]; }
  int64_t row(size_t number) const {
    if (!shards_.ascending.empty()) return shards_.ascending[number].row;
    // The last row that begins here or before: those before it that do are empty.
    return std::upper_bound(shards_.first.begin(), shards_.first.end(), static_cast<int64_t>(number)) -
           shards_.first.begin() - 1;
  }
  // Where it starts in the dense local order of `row`, its row.
  int64_t local(size_t number, int64_t row) const {
    int64_t out = 0;
    for (size_t i = shards_.first[row]; i < at(number); ++i) out += shards_.intervals[i].length();
    return out;
  }
  // The first that ends after `element`. Requires that there is one.
  size_t Around(int64_t element) const {
    size_t low = 0, high = size() - 1;
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      (interval(middle).end > element) ? high = middle : low = middle + 1;
    }
    return low;
  }

 private:
  size_t at(size_t number) const {
    return shards_.ascending.empty() ? number : static_cast<size_t>(shards_.ascending[number].interval);
  }
  const DimShards& shards_;
};

// Calls visit(row, other_row, run) for what some rows of a side share with the rows of the other; `run` has the
// side's offset in Run::from.
template <typename Visit>
void EachShared(const DimShards& shards, const RowSet& some, const Numbered& other, const Visit& visit) {
  for (int64_t row : some.rows()) {
    int64_t local = 0;
    for (int64_t i = shards.first[row]; i < shards.first[static_cast<size_t>(row) + 1]; ++i) {
      const Interval& one = shards.intervals[i];
      for (size_t k = other.Around(one.begin); k < other.size() && other.interval(k).begin < one.end; ++k) {
        const Interval& two = other.interval(k);
        const int64_t begin = std::max(one.begin, two.begin), other_row = other.row(k);
        visit(row, other_row,
              Run{local + begin - one.begin, other.local(k, other_row) + begin - two.begin, begin,
                  std::min(one.end, two.end) - begin});
      }
      local += one.length();
    }
  }
}

// What looking up the rows' intervals would cost, in intervals walked along.
int64_t CostOfLookingUp(const DimShards& shards, const RowSet& some, const DimShards& other) {
  constexpr int64_t kSearch = 16;
  int64_t intervals = 0;
  double elements = 0;
  for (int64_t row : some.rows()) {
    intervals += shards.first[static_cast<size_t>(row) + 1] - shards.first[row];
    elements += static_cast<double>(shards.length[row]);
  }
  const double per_element = static_cast<double>(other.intervals.size()) / static_cast<double>(shards.size);
  return kSearch * intervals + static_cast<int64_t>(2 * elements * per_element);
}

bool CheaperToLookUp(const DimShards& from, const DimShards& to, const SomeRows& some) {
  const size_t all = from.intervals.size() + to.intervals.size();
  return from.size > 0 &&
         CostOfLookingUp(from, some.from, to) + CostOfLookingUp(to, some.to, from) < static_cast<int64_t>(all);
}

// What some rows share with others, in ascending order of the tensor for every pair.
std::vector<Segment> LookUp(const DimShards& from, const DimShards& to, const SomeRows& some) {
  std::vector<Segment> out;
  const auto add = [&](int64_t from_row, int64_t to_row, const Run& run) {
    out.push_back({static_cast<int32_t>(from_row), static_cast<int32_t>(to_row), run});
  };
  EachShared(from, some.from, Numbered(to), add);
  EachShared(to, some.to, Numbered(from), [&](int64_t to_row, int64_t from_row, const Run& run) {
    if (!some.from.Has(from_row)) add(from_row, to_row, {run.to, run.from, run.global, run.length});
  });
  return out;
}

// What all rows share, in ascending order of the tensor; or only what concerns some.
std::vector<Segment> WalkAlong(const DimShards& from, const DimShards& to, const SomeRows* some) {
  std::vector<Segment> out;
  // With few rows most of this stays untouched, which costs less than growing.
  out.reserve(from.intervals.size() + to.intervals.size());
  for (Ascending a(from), b(to); !a.done() && !b.done();) {
    const int64_t begin = std::max(a.interval().begin, b.interval().begin);
    const int64_t end = std::min(a.interval().end, b.interval().end);
    if (begin < end && (some == nullptr || some->Concern(a.row(), b.row()))) {
      const Run run{a.local() + begin - a.interval().begin, b.local() + begin - b.interval().begin, begin, end - begin};
      out.push_back({static_cast<int32_t>(a.row()), static_cast<int32_t>(b.row()), run});
    }
    (a.interval().end < b.interval().end) ? a.Next() : b.Next();
  }
  return out;
}

// Puts the segments of each pair together.
void AddPairs(const DimShards& from, const DimShards& to, const std::vector<Segment>& segments, Detail detail,
              DimOverlap& out) {
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
  if (sums.total_count() == 1) {
    const auto spread = std::find(sums.count.begin(), sums.count.end(), 1) - sums.count.begin();
    return NumberOfOne(static_cast<Spread>(spread), sums.elements[static_cast<size_t>(spread)]);
  }
  return Find(sums);
}

int32_t SumsOnce::NumberOfOne(Spread spread, int64_t elements) {
  One& one = ones_[static_cast<uint64_t>(elements) % ones_.size()];
  if (one.elements == elements && one.spread == spread) return one.number;
  SpreadSums sums;
  sums.Add(spread, elements);
  one = {spread, elements, Find(sums)};
  return one.number;
}

int32_t SumsOnce::Find(const SpreadSums& sums) {
  const auto [at, fresh] = numbers_.emplace(sums, size());
  if (fresh) sums_.push_back(sums);
  return last_ = at->second;
}

const Pair* DimOverlap::Find(int64_t from_row, int64_t to_row) const {
  auto begin = pairs.begin() + first_of_to[to_row];
  auto end = pairs.begin() + first_of_to[static_cast<size_t>(to_row) + 1];
  if (end - begin == from_rows) return &begin[from_row];
  auto it = std::lower_bound(begin, end, from_row, [](const Pair& p, int64_t row) { return p.from_row < row; });
  return it != end && it->from_row == from_row ? &*it : nullptr;
}

DimOverlap Overlap(const DimShards& from, const DimShards& to, Detail detail, const SomeRows* some) {
  DimOverlap out;
  out.from_rows = from.num_rows();
  out.to_rows = to.num_rows();
  out.first_of_to.assign(static_cast<size_t>(out.to_rows) + 1, 0);
  if (some != nullptr && CheaperToLookUp(from, to, *some)) {
    AddPairs(from, to, LookUp(from, to, *some), detail, out);
  } else {
    const auto from_rows = RowsInOrder::Of(from);
    const auto to_rows = from_rows ? RowsInOrder::Of(to) : std::nullopt;
    if (to_rows) {
      OverlapInOrder(from, *from_rows, to, *to_rows, detail, some, out);
    } else {
      AddPairs(from, to, WalkAlong(from, to, some), detail, out);
    }
  }
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
