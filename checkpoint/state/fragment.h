// A device's fragment of a tensor, as boxes: what files hold. A fragment is the product of one list of intervals a
// dimension, kept dense; each combination of intervals is a box of the tensor and a box of the fragment.
#ifndef RESHARD_CHECKPOINT_STATE_FRAGMENT_H_
#define RESHARD_CHECKPOINT_STATE_FRAGMENT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "reshard/layout/layout.h"
#include "reshard/runtime/strided_copy.h"

namespace reshard {

struct FragmentBox {
  std::vector<int64_t> offset;  // in the tensor, elements
  std::vector<int64_t> size;
  std::vector<int64_t> local;  // in the fragment
};

// Ascending; none when the fragment has no elements. A fragment of no dimensions is one box of none.
std::vector<FragmentBox> FragmentBoxes(const Layout& layout, int64_t position);

// Where a box of the tensor that lies within one box of the fragment begins in the fragment.
std::vector<int64_t> LocalOffset(const Layout& layout, int64_t position, absl::Span<const int64_t> offset);

// Copies between dense memory of a box, row-major, and its place in a strided fragment.
StridedCopy BoxToFragment(absl::Span<const int64_t> size, absl::Span<const int64_t> local, int64_t element,
                          absl::Span<const int64_t> strides);
StridedCopy FragmentToBox(absl::Span<const int64_t> size, absl::Span<const int64_t> local, int64_t element,
                          absl::Span<const int64_t> strides);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_STATE_FRAGMENT_H_
