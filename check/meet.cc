#include "check/meet.h"

#include <algorithm>

namespace reshard::check {
namespace {

struct RowInterval {
  Interval interval;
  int64_t row;
};

std::vector<RowInterval> Ascending(const Holdings::Dim& dim, const Contents& contents) {
  std::vector<RowInterval> out;
  for (int64_t row = 0; row < dim.num_rows(); ++row) {
    for (const Interval& interval : contents.intervals(dim.content_of_row[row])) {
      out.push_back({interval, row});
    }
  }
  std::sort(out.begin(), out.end(),
            [](const RowInterval& a, const RowInterval& b) { return a.interval.begin < b.interval.begin; });
  return out;
}

}  // namespace

Meet::Meet(const Holdings::Dim& from, const Holdings::Dim& to, const Contents& contents)
    : to_rows_(to.num_rows()),
      to_rows_of_(static_cast<size_t>(from.num_rows()), 0),
      from_rows_of_(static_cast<size_t>(to.num_rows()), 0) {
  slots_ = from.slots || to.slots;
  if (slots_) {
    MeetSlots(from, to, contents);
    return;
  }
  const std::vector<RowInterval> a = Ascending(from, contents);
  const std::vector<RowInterval> b = Ascending(to, contents);
  // The rows of one layout are disjoint, so one pass meets every pair of intervals that share something.
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const int64_t begin = std::max(a[i].interval.begin, b[j].interval.begin);
    const int64_t end = std::min(a[i].interval.end, b[j].interval.end);
    if (begin < end) Add(a[i].row, b[j].row, end - begin);
    if (a[i].interval.end < b[j].interval.end) {
      ++i;
    } else {
      ++j;
    }
  }
}

void Meet::Add(int64_t from_row, int64_t to_row, int64_t elements) {
  const auto [it, added] = index_.try_emplace(from_row * to_rows_ + to_row, static_cast<int32_t>(pairs_.size()));
  if (added) {
    pairs_.push_back({from_row, to_row, 0});
    ++to_rows_of_[from_row];
    ++from_rows_of_[to_row];
  }
  pairs_[it->second].elements += elements;
}

void Meet::MeetSlots(const Holdings::Dim& from, const Holdings::Dim& to, const Contents& contents) {
  for (int64_t a = 0; a < from.num_rows(); ++a) {
    const std::vector<Interval> held = Distinct(contents.intervals(from.content_of_row[a]));
    for (int64_t b = 0; b < to.num_rows(); ++b) {
      int64_t elements = 0;
      for (const Interval& needed : contents.intervals(to.content_of_row[b])) elements += Covered(needed, held);
      if (elements > 0) Add(a, b, elements);
    }
  }
}

std::vector<Interval> Distinct(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> out;
  for (const Interval& interval : intervals) {
    if (!out.empty() && interval.begin <= out.back().end) {
      out.back().end = std::max(out.back().end, interval.end);
    } else {
      out.push_back(interval);
    }
  }
  return out;
}

int64_t Covered(const Interval& interval, const std::vector<Interval>& by) {
  auto it = std::upper_bound(by.begin(), by.end(), interval.begin,
                             [](int64_t at, const Interval& other) { return at < other.end; });
  int64_t out = 0;
  for (; it != by.end() && it->begin < interval.end; ++it) {
    out += std::min(interval.end, it->end) - std::max(interval.begin, it->begin);
  }
  return out;
}

int64_t DistinctLack(const Holdings& from, int64_t p, const Holdings& to, int64_t q,
                     const std::vector<Contents>& contents) {
  int64_t needs = 1, holds = p < 0 ? 0 : 1;
  for (int d = 0; d < to.layout().rank(); ++d) {
    int64_t needed = 0, shared = 0;
    const auto held = p < 0 ? std::vector<Interval>() : Distinct(contents[d].intervals(from.Content(p, d)));
    for (const Interval& interval : Distinct(contents[d].intervals(to.Content(q, d)))) {
      needed += interval.length();
      shared += Covered(interval, held);
    }
    needs *= needed;
    holds *= shared;
  }
  return needs - holds;
}

bool Meeting::slots() const {
  return std::any_of(dims_.begin(), dims_.end(), [](const Meet& meet) { return meet.slots(); });
}

Meeting::Meeting(const Holdings& from, const Holdings& to, const std::vector<Contents>& contents, bool contributions)
    : from_(&from), to_(&to) {
  const int dims = from.num_dims() - (contributions ? 0 : 1);
  for (int d = 0; d < dims; ++d) dims_.emplace_back(from.dim(d), to.dim(d), contents[d]);
}

int64_t Meeting::Shared(int64_t from_position, int64_t to_position) const {
  int64_t out = 1;
  for (int d = 0; d < num_dims() && out != 0; ++d) {
    out *= dim(d).Shared(from_->Row(from_position, d), to_->Row(to_position, d));
  }
  return out;
}

int64_t Meeting::Kept(int64_t device) const {
  const int64_t p = from_->PositionOf(device);
  const int64_t q = to_->PositionOf(device);
  return p < 0 || q < 0 ? 0 : Shared(p, q);
}

int64_t Meeting::FromCellsOf(int64_t to_position) const {
  int64_t out = 1;
  for (int d = 0; d < num_dims(); ++d) out *= dim(d).FromRowsOf(to_->Row(to_position, d));
  return out;
}

int64_t Meeting::ToCellsOf(int64_t from_position) const {
  int64_t out = 1;
  for (int d = 0; d < num_dims(); ++d) out *= dim(d).ToRowsOf(from_->Row(from_position, d));
  return out;
}

int64_t Meeting::SameCell(int64_t to_position) const {
  int64_t cell = 0;
  for (int d = 0; d < num_dims(); ++d) {
    const auto& rows = from_->dim(d).row_of_content;
    const auto it = rows.find(to_->Content(to_position, d));
    if (it == rows.end()) return -1;
    cell = cell * from_->dim(d).num_rows() + it->second;
  }
  return cell;
}

}  // namespace reshard::check
