// One tensor dimension as DTensor's placements split it one by one, and back.
#ifndef RESHARD_LAYOUT_NOTATION_DTENSOR_DIM_H_
#define RESHARD_LAYOUT_NOTATION_DTENSOR_DIM_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "layout/draft.h"
#include "reshard/layout/layout.h"

namespace reshard::notation {

// Follows the splits of one dimension. The state is the list of digits that the global index is made of, major first:
// taken digits belong to a mesh axis, every device still has all of the kept ones, and behind them is a contiguous
// rest. What a device holds, concatenated, is indexed by the kept digits and the rest, and that is what the next split
// cuts.
//
// With no kept digit the device holds one interval, and a split is exact for every size: DTensor cuts ceil by ceil, as
// layouts do. With kept digits a split cuts along them only when everything divides evenly.
class DTensorDim {
 public:
  explicit DTensorDim(int64_t size) : size_(size) {}

  // Splits what a device holds into `split_factor` blocks, and each of them along the mesh axis of size `parts`. Where
  // the outcome is not a list of factors, says what the split does instead: "does not fit ...".
  std::optional<std::string> Split(int axis, int64_t parts, int64_t split_factor, size_t column);

  // Adds the digits as factors.
  void MoveTo(layout::LayoutDraft::Dim* dim);

 private:
  struct Digit {
    int64_t size = 1;
    int axis = -1;  // -1: kept
    int64_t pre = 1;
    size_t column = 0;
    bool kept() const { return axis < 0; }
  };

  // Finds a run of kept digits of this product, from index `at` on, that comes next in the local index; splits digits
  // and takes from the rest as needed. Calls take(digit) for every one of them. Returns the index behind the run, or
  // nothing.
  template <typename Take>
  std::optional<size_t> Walk(size_t at, int64_t product, size_t column, Take take);

  int64_t size_;
  std::vector<Digit> digits_;
};

// The placements of the mesh axes, "R" for those that shard nothing. Shard orders where every dimension is cut along
// whole axes only, which need no strided shards; strided shards and no orders otherwise, since a DTensor has one or the
// other. Unimplemented when placements cannot say it; an uneven dimension may still be refused when the text is
// imported.
absl::StatusOr<std::vector<std::string>> DTensorPlacements(const Layout& layout);

}  // namespace reshard::notation

#endif  // RESHARD_LAYOUT_NOTATION_DTENSOR_DIM_H_
