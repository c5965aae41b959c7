#include "check/holdings.h"

#include <algorithm>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"

namespace reshard::check {
namespace {

// Intervals over all rows of one layout; more are refused.
constexpr int64_t kMaxIntervalsInAll = int64_t{1} << 23;

// Intervals that Layout::Intervals makes on its way for one device: it does not skip empty ones. Where dimensions are
// cut before they are flattened, each element of those in front repeats the intervals.
int64_t IntervalsOf(const DimLayout& dim) {
  int64_t out = 1, in_front = 1;
  for (const DimLayout& inner : dim.flattened) {
    const auto runs = inner.Axes().empty() ? 1 : CheckedMul(in_front, IntervalsOf(inner));
    out = std::max(out, std::min(runs.value_or(kMaxIntervalsInAll), kMaxIntervalsInAll));
    in_front *= inner.size;
  }
  for (const Factor& factor : dim.factors) {
    if (factor.kind == Factor::Kind::kBlocks) out = CheckedMul(out, factor.blocks).value_or(kMaxIntervalsInAll);
    for (const auto& runs : factor.slots) out = std::max(out, static_cast<int64_t>(runs.size()));
    out = std::min(out, kMaxIntervalsInAll);
  }
  return out;
}

}  // namespace

int32_t Contents::Intern(const std::vector<Interval>& intervals) {
  std::vector<int64_t> key;
  key.reserve(intervals.size() * 2);
  for (const Interval& interval : intervals) {
    key.push_back(interval.begin);
    key.push_back(interval.end);
  }
  const auto [it, added] = index_.try_emplace(std::move(key), static_cast<int32_t>(lists_.size()));
  if (added) {
    lists_.push_back(intervals);
    std::vector<int64_t>& starts = starts_.emplace_back(1, 0);
    bool ascending = true;
    for (size_t i = 0; i < intervals.size(); ++i) {
      starts.push_back(starts.back() + intervals[i].length());
      ascending = ascending && (i == 0 || intervals[i - 1].end <= intervals[i].begin);
    }
    ascending_.push_back(ascending);
  }
  return it->second;
}

std::optional<Contents::RunPosition> Contents::Find(int32_t content, int64_t begin, int64_t size) const {
  const std::vector<Interval>& list = intervals(content);
  if (!ascending_[content]) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (begin < list[i].begin || begin >= list[i].end || size > list[i].end - begin) continue;
      return RunPosition{static_cast<int64_t>(i), starts_[content][i] + begin - list[i].begin};
    }
    return std::nullopt;
  }
  auto it = std::upper_bound(list.begin(), list.end(), begin,
                             [](int64_t at, const Interval& interval) { return at < interval.begin; });
  if (it == list.begin()) return std::nullopt;
  --it;
  if (begin >= it->end || size > it->end - begin) return std::nullopt;
  const int64_t number = it - list.begin();
  return RunPosition{number, starts_[content][number] + begin - it->begin};
}

Devices::Devices(const absl::flat_hash_set<Mesh>& meshes) {
  for (const Mesh& mesh : meshes) {
    for (int64_t p = 0; p < mesh.size(); ++p) ids_.push_back(mesh.Device(p));
  }
  std::sort(ids_.begin(), ids_.end());
  ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
}

int64_t Devices::Find(int64_t id) const {
  const auto it = std::lower_bound(ids_.begin(), ids_.end(), id);
  return it != ids_.end() && *it == id ? it - ids_.begin() : -1;
}

std::vector<AxisRef> PartialRefs(const Layout& layout) {
  std::vector<AxisRef> refs;
  if (layout.partial()) refs = layout.partial()->axes;
  std::sort(refs.begin(), refs.end(), [](const AxisRef& a, const AxisRef& b) {
    return std::tie(a.axis, a.pre, a.size) < std::tie(b.axis, b.pre, b.size);
  });
  std::vector<AxisRef> out;
  for (const AxisRef& ref : refs) {
    if (ref.size == 1) continue;
    const bool follows = !out.empty() && out.back().axis == ref.axis && out.back().pre * out.back().size == ref.pre;
    if (follows) {
      out.back().size *= ref.size;
    } else {
      out.push_back(ref);
    }
  }
  return out;
}

absl::Status Holdings::AddDim(int d, Contents& contents, int64_t& budget) {
  Dim& dim = dims_.emplace_back();
  dim.slots = layout_.slot_dim() == d;
  int64_t rows = 1;
  for (const AxisRef& axis : layout_.dim(d).Axes()) {
    if (axis.size == 1) continue;
    dim.digits.push_back(axis);
    rows *= axis.size;  // at most the number of devices
  }
  const int64_t intervals = IntervalsOf(layout_.dim(d));
  const bool fits = rows <= budget / intervals;
  if (fits) budget -= rows * intervals;
  if (!fits) {
    return absl::ResourceExhaustedError(absl::StrCat("a layout cuts its dimensions into more than ", kMaxIntervalsInAll,
                                                     " intervals over all devices"));
  }
  std::vector<int64_t> holder(static_cast<size_t>(rows), 0);  // a position that holds the row
  if (rows > 1) {
    dim.row_of_position.assign(static_cast<size_t>(mesh().size()), 0);
    for (int64_t p = 0; p < mesh().size(); ++p) {
      int64_t row = 0;
      for (const AxisRef& ref : dim.digits) row = row * ref.size + layout_.Coordinate(p, ref);
      dim.row_of_position[p] = static_cast<int32_t>(row);
      holder[row] = p;
    }
  }
  std::vector<int64_t>& lengths = lengths_.emplace_back();
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t content = contents.Intern(layout_.Intervals(holder[row], d));
    dim.content_of_row.push_back(content);
    lengths.push_back(contents.length(content));
    num_intervals_ += 1 + static_cast<int64_t>(contents.intervals(content).size());
    if (content != 0) dim.row_of_content.emplace(content, static_cast<int32_t>(row));
  }
  return absl::OkStatus();
}

void Holdings::AddContributions(Contents& contents) {
  Dim& dim = dims_.emplace_back();
  dim.digits = PartialRefs(layout_);
  int64_t rows = 1;
  for (const AxisRef& ref : dim.digits) rows *= ref.size;
  if (rows > 1) {
    for (int64_t p = 0; p < mesh().size(); ++p) {
      int64_t row = 0;
      for (const AxisRef& ref : dim.digits) row = row * ref.size + layout_.Coordinate(p, ref);
      dim.row_of_position.push_back(static_cast<int32_t>(row));
    }
  }
  lengths_.emplace_back(static_cast<size_t>(rows), 1);
  for (int64_t row = 0; row < rows; ++row) {
    dim.content_of_row.push_back(contents.Intern({{row, row + 1}}));
    dim.row_of_content.emplace(dim.content_of_row.back(), static_cast<int32_t>(row));
  }
}

absl::StatusOr<Holdings> Holdings::Create(const Layout& layout, const Devices& devices,
                                          std::vector<Contents>& contents) {
  Holdings out(layout);
  int64_t budget = kMaxIntervalsInAll;
  for (int d = 0; d < layout.rank(); ++d) {
    RETURN_IF_ERROR(out.AddDim(d, contents[d], budget));
  }
  out.AddContributions(contents[layout.rank()]);
  for (const Dim& dim : out.dims_) out.num_cells_ *= dim.num_rows();
  out.position_of_.assign(static_cast<size_t>(devices.size()), -1);
  for (int64_t p = 0; p < layout.mesh().size(); ++p) {
    int64_t elements = 1;
    for (int d = 0; d < out.num_dims(); ++d) elements *= out.Length(out.Row(p, d), d);
    out.elements_.push_back(elements);
    out.max_elements_ = std::max(out.max_elements_, elements);
    const int64_t device = devices.Find(layout.mesh().Device(p));
    out.device_at_.push_back(static_cast<int32_t>(device));
    out.position_of_[device] = static_cast<int32_t>(p);
  }
  return out;
}

int64_t Holdings::Cell(int64_t position) const {
  int64_t cell = 0;
  for (int d = 0; d < num_dims(); ++d) cell = cell * dim(d).num_rows() + Row(position, d);
  return cell;
}

}  // namespace reshard::check
