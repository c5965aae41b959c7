#include "runtime/execute/merged_views.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "layout/flatten.h"

namespace reshard::execute {

CallersEnd::CallersEnd(const Layout& callers, const Layout& planned, const Buffer& programs, int64_t rank)
    : buffer(programs) {
  auto next = callers.dims().begin();
  for (const DimLayout& dim : planned.dims()) {
    merged.push_back(0);
    for (size_t left = layout::SizesOf(dim).size(); left > 0; ++merged.back()) {
      left -= layout::SizesOf(*next++).size();
    }
  }
  buffer.shape.assign(std::max<size_t>(1, callers.dims().size()), 0);  // outside the mesh, no elements
  const std::optional<int64_t> position = callers.mesh().Position(rank);
  if (!position) return;
  const std::vector<int64_t> shape = callers.LocalShape(*position);
  buffer.shape.assign(shape.begin(), shape.end());
}

absl::StatusOr<ConstTensorView> MergedView(const CallersEnd& end, const ConstTensorView& view, absl::string_view name) {
  if (!end.buffer.held || end.buffer.bytes == 0) return view;
  if (view.shape != end.buffer.shape || view.strides.size() != view.shape.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", name, " has shape [", absl::StrJoin(view.shape, ", "), "] and ", view.strides.size(),
                     " strides; its layout gives this rank [", absl::StrJoin(end.buffer.shape, ", "), "]"));
  }
  ConstTensorView out = view;
  out.shape.clear();
  out.strides.clear();
  size_t d = 0;
  for (const int count : end.merged) {
    int64_t size = 1, stride = 1;
    for (const size_t last = d + static_cast<size_t>(count); d < last; ++d) {
      if (view.shape[d] == 1) continue;
      if (size > 1 && stride != view.strides[d] * view.shape[d]) {
        return absl::InvalidArgumentError(
            absl::StrCat("the ", name, " has shape [", absl::StrJoin(view.shape, ", "), "] and strides [",
                         absl::StrJoin(view.strides, ", "), "]; the plan flattens ", count,
                         " of its dimensions, whose elements must be evenly apart: pass a contiguous copy"));
      }
      size *= view.shape[d];
      stride = view.strides[d];
    }
    out.shape.push_back(size);
    out.strides.push_back(stride);
  }
  return out;
}

}  // namespace reshard::execute
