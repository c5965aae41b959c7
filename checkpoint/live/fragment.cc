#include "checkpoint/live/fragment.h"

#include <utility>

#include "layout/flatten.h"

namespace reshard::live {
namespace {

// A box of a dense row-major array and the same box within a fragment.
Region BoxRegion(absl::Span<const int64_t> size, absl::Span<const int64_t> local, bool to_fragment) {
  Region region;
  for (size_t d = 0; d < size.size(); ++d) {
    region.push_back({to_fragment ? IndexRun{0, local[d], size[d]} : IndexRun{local[d], 0, size[d]}});
  }
  return region;
}

// Extends each box by an interval of one more dimension. The interval begins at `local` in the fragment.
void AddDim(const DimLayout& dim, const Interval& interval, int64_t local, std::vector<FragmentBox>& boxes) {
  const std::vector<std::vector<Interval>> parts = layout::BoxesOfRun(layout::SizesOf(dim), interval);
  std::vector<FragmentBox> out;
  for (const FragmentBox& box : boxes) {
    int64_t before = 0;  // elements of the interval
    for (const std::vector<Interval>& part : parts) {
      FragmentBox& longer = out.emplace_back(box);
      longer.local.push_back(local + before);
      int64_t elements = 1;
      for (const Interval& along : part) {
        longer.offset.push_back(along.begin);
        longer.size.push_back(along.length());
        elements *= along.length();
      }
      before += elements;
    }
  }
  boxes = std::move(out);
}

}  // namespace

std::vector<FragmentBox> FragmentBoxes(const Layout& layout, int64_t position) {
  const auto rank = static_cast<size_t>(layout.rank());
  std::vector<std::vector<Interval>> intervals;
  std::vector<std::vector<int64_t>> begins;  // where each interval begins in the fragment
  for (int d = 0; d < layout.rank(); ++d) {
    intervals.push_back(layout.Intervals(position, d));
    if (intervals.back().empty()) return {};
    begins.emplace_back();
    int64_t begin = 0;
    for (const Interval& interval : intervals.back()) {
      begins.back().push_back(begin);
      begin += interval.length();
    }
  }
  std::vector<FragmentBox> boxes;
  std::vector<size_t> at(rank, 0);
  for (;;) {
    std::vector<FragmentBox> of_intervals(1);
    for (size_t d = 0; d < rank; ++d) {
      AddDim(layout.dims()[d], intervals[d][at[d]], begins[d][at[d]], of_intervals);
    }
    boxes.insert(boxes.end(), of_intervals.begin(), of_intervals.end());
    size_t d = rank;
    while (d > 0 && ++at[d - 1] == intervals[d - 1].size()) at[--d] = 0;
    if (d == 0) return boxes;
  }
}

std::vector<int64_t> LocalOffset(const Layout& layout, int64_t position, absl::Span<const int64_t> offset) {
  std::vector<int64_t> local;
  size_t next = 0;
  for (int d = 0; d < layout.rank(); ++d) {
    int64_t index = 0;
    for (const int64_t size : layout::SizesOf(layout.dim(d))) index = index * size + offset[next++];
    int64_t begin = 0;
    for (const Interval& interval : layout.Intervals(position, d)) {
      if (index >= interval.begin && index < interval.end) {
        begin += index - interval.begin;
        break;
      }
      begin += interval.length();
    }
    local.push_back(begin);
  }
  return local;
}

InFragment At(const Layout& layout, absl::Span<const int64_t> local, absl::Span<const int64_t> strides) {
  InFragment out;
  for (int d = 0; d < layout.rank(); ++d) {
    out.elements += local[d] * strides[d];
    const std::vector<int64_t> sizes = layout::SizesOf(layout.dim(d));
    int64_t below = 1;
    Dims own;
    for (size_t i = sizes.size(); i-- > 0; below *= sizes[i]) own.insert(own.begin(), strides[d] * below);
    out.strides.insert(out.strides.end(), own.begin(), own.end());
  }
  return out;
}

StridedCopy BoxToFragment(absl::Span<const int64_t> size, absl::Span<const int64_t> local, int64_t element,
                          absl::Span<const int64_t> strides) {
  return StridedCopy(BoxRegion(size, local, true), element, DenseStrides(size), strides);
}

StridedCopy FragmentToBox(absl::Span<const int64_t> size, absl::Span<const int64_t> local, int64_t element,
                          absl::Span<const int64_t> strides) {
  return StridedCopy(BoxRegion(size, local, false), element, strides, DenseStrides(size));
}

}  // namespace reshard::live
