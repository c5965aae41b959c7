// Neighboring dimensions as one: what a device holds of them, plain factors that say the same, and two layouts of one
// tensor over common dimensions.
#ifndef RESHARD_LAYOUT_FLATTEN_H_
#define RESHARD_LAYOUT_FLATTEN_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/layout/layout.h"

namespace reshard::layout {

// The sizes of the tensor's dimensions that a dimension of a layout stands for: one, or those flattened into it.
std::vector<int64_t> SizesOf(const DimLayout& dim);
// Appends them.
void AppendSizes(const DimLayout& dim, std::vector<int64_t>& sizes);

// What a device holds of dimensions that are flattened, row-major: (2 of 0-3) x (1-2 of 0-7) are the runs 17-18 of 32.
class FlattenedRuns {
 public:
  // Adds the next dimension, faster than those before it: its size, and what the device holds of it, ascending. The
  // number of runs is limited by the rules of the algebra.
  void Append(int64_t size, absl::Span<const Interval> held);
  // Number of elements held.
  int64_t length() const { return length_; }
  // The runs: ascending, not touching.
  const std::vector<Interval>& runs() const { return runs_; }
  // Those parts of the runs that lie at these local positions, which are ascending: runs 8-11 and 24-27 at 2-5 are
  // 10-11 and 24-25.
  std::vector<Interval> At(absl::Span<const Interval> local) const;

 private:
  std::vector<Interval> runs_ = {{0, 1}};
  int64_t length_ = 1;
};

// A run of row-major elements as boxes, ascending: at most twice as many as there are dimensions, less one. The run
// 5-13 of a 4 x 5 matrix is [1, 2) x [0, 5) and [2, 3) x [0, 4). Each box: an interval per dimension. Requires a run
// with elements, and sizes of at least 1.
std::vector<std::vector<Interval>> BoxesOfRun(absl::Span<const int64_t> sizes, const Interval& run);

// The dimension, cut by nothing.
DimLayout Whole(const DimLayout& dim);

// Factors that cut the whole dimension as its factors and those of the dimensions flattened into it do, so that every
// device holds the same elements: (512, <tp>128) is <512,tp>. nullopt where no such factors are known, as for
// <dp=[5,7]>(6, <tp>4): then only an enumeration says who holds what.
std::optional<std::vector<Factor>> FactorsOf(const DimLayout& dim, const Mesh& mesh);

// Both layouts over the dimensions that they have in common: what one of them flattens is flattened in the other, too,
// and factors alone say what they can. [<tp>512, 128, 4] and [<dp>(512, 128), 4] become [<tp>(512, 128), 4] and itself.
// Post-conditions: every device holds the same elements at the same local positions as before; dims() have equal sizes.
// Layouts that flatten nothing, or are of different shapes, stay as they are.
// InvalidArgument where the rules do not let it be flattened: a slot table, too many intervals.
absl::StatusOr<std::pair<Layout, Layout>> OverCommonDims(const Layout& a, const Layout& b);

}  // namespace reshard::layout

#endif  // RESHARD_LAYOUT_FLATTEN_H_
