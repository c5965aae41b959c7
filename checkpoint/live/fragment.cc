#include "checkpoint/live/fragment.h"

#include "reshard/runtime/tensor_view.h"

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

}  // namespace

std::vector<FragmentBox> FragmentBoxes(const Layout& layout, int64_t position) {
  const auto rank = static_cast<size_t>(layout.rank());
  std::vector<std::vector<Interval>> intervals;
  std::vector<std::vector<int64_t>> begins;  // of each interval, in the fragment
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
    FragmentBox box;
    for (size_t d = 0; d < rank; ++d) {
      box.offset.push_back(intervals[d][at[d]].begin);
      box.size.push_back(intervals[d][at[d]].length());
      box.local.push_back(begins[d][at[d]]);
    }
    boxes.push_back(std::move(box));
    size_t d = rank;
    while (d > 0 && ++at[d - 1] == intervals[d - 1].size()) at[--d] = 0;
    if (d == 0) return boxes;
  }
}

std::vector<int64_t> LocalOffset(const Layout& layout, int64_t position, absl::Span<const int64_t> offset) {
  std::vector<int64_t> local;
  for (int d = 0; d < layout.rank(); ++d) {
    int64_t begin = 0;
    for (const Interval& interval : layout.Intervals(position, d)) {
      if (offset[d] >= interval.begin && offset[d] < interval.end) {
        begin += offset[d] - interval.begin;
        break;
      }
      begin += interval.length();
    }
    local.push_back(begin);
  }
  return local;
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
