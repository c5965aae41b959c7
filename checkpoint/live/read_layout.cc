#include "checkpoint/live/read_layout.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "layout/axes.h"
#include "layout/flatten.h"
#include "status/macros.h"

namespace reshard::live {
namespace {

// For files that are in memory, and messages between processes of one machine. Elsewhere both are slower, by about the
// same factor.
constexpr double kNanosecondsPerByteRead = 0.5;
constexpr double kNanosecondsPerRun = 2000;
constexpr double kNanosecondsPerByteMoved = 1.0;

// How much of a chunk is in one run along each dimension of the layout. In flattened dimensions a run has whole inner
// dimensions and a part of the next outer one.
std::vector<int64_t> AlongDims(const Layout& layout, absl::Span<const int64_t> chunk) {
  std::vector<int64_t> out;
  for (const DimLayout& dim : layout.dims()) {
    const std::vector<int64_t> sizes = layout::SizesOf(dim);
    int64_t run = 1;
    for (size_t i = sizes.size(); i-- > 0;) {
      run *= chunk[i];
      if (chunk[i] < sizes[i]) break;
    }
    chunk.remove_prefix(sizes.size());
    out.push_back(run);
  }
  return out;
}

// Estimated time of the device at position 0, which has the most of everything unless sizes are uneven.
double Nanoseconds(const Layout& read, const Layout& target, bool is_part_of_target, int64_t element,
                   absl::Span<const int64_t> chunk) {
  const auto bytes = static_cast<double>(read.MaxLocalElements() * element);
  double run = static_cast<double>(element);
  bool whole = true;  // in the dimensions after this one
  for (int d = read.rank(); d-- > 0;) {
    const std::vector<Interval> intervals = read.Intervals(0, d);
    const int64_t longest = intervals.empty() ? 0 : intervals.front().length();
    const int64_t common = std::max<int64_t>(1, std::min(longest, chunk[d]));
    if (whole) run *= static_cast<double>(common);
    whole = whole && common == chunk[d];
  }
  const auto wanted = static_cast<double>(target.MaxLocalElements() * element);
  const double kept = is_part_of_target ? bytes : wanted / static_cast<double>(target.mesh().size());
  return bytes * kNanosecondsPerByteRead + bytes / run * kNanosecondsPerRun +
         std::max(0.0, wanted - kept) * kNanosecondsPerByteMoved;
}

}  // namespace

absl::StatusOr<Layout> ReadLayout(const Layout& target, DType dtype, absl::Span<const int64_t> chunk_of_tensor) {
  const std::vector<int64_t> chunk = AlongDims(target, chunk_of_tensor);
  const std::vector<AxisRef> free = layout::FreeAxes(target.mesh(), layout::DimAxes(target));
  std::optional<Layout> best;
  double least = 0.0;
  const auto consider = [&](std::vector<DimLayout> dims, bool is_part_of_target) -> absl::Status {
    ASSIGN_OR_RETURN(Layout read, Layout::Create(target.mesh(), std::move(dims)));
    const double time = Nanoseconds(read, target, is_part_of_target, SizeOf(dtype), chunk);
    if (best && time >= least) return absl::OkStatus();
    best = std::move(read);
    least = time;
    return absl::OkStatus();
  };
  // Devices of a slot table hold indices in common, so such a target cannot read each element once.
  for (size_t d = 0; d < target.dims().size() && !target.slot_dim(); ++d) {
    std::vector<DimLayout> dims = target.dims();
    for (const AxisRef& axis : free) dims[d].factors.push_back(Factor::Along(axis));
    RETURN_IF_ERROR(consider(std::move(dims), true));
    if (free.empty()) break;
  }
  for (size_t d = 0; d < target.dims().size(); ++d) {
    std::vector<DimLayout> dims = target.dims();
    for (DimLayout& dim : dims) dim = layout::Whole(dim);
    for (int axis = 0; axis < target.mesh().num_axes(); ++axis) {
      if (target.mesh().axis(axis).size > 1) {
        dims[d].factors.push_back(Factor::Along({axis, 1, target.mesh().axis(axis).size}));
      }
    }
    RETURN_IF_ERROR(consider(std::move(dims), false));
  }
  return *std::move(best);
}

}  // namespace reshard::live
