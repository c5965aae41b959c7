// Splits a device's fragment of a tensor into boxes, which is what files contain. A fragment is the product of one list
// of intervals per dimension, stored densely; each combination of intervals is a box of the tensor and a box of the
// fragment.
#ifndef RESHARD_CHECKPOINT_LIVE_FRAGMENT_H_
#define RESHARD_CHECKPOINT_LIVE_FRAGMENT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "reshard/layout/layout.h"
#include "reshard/runtime/strided_copy.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard::live {

struct FragmentBox {
  std::vector<int64_t> offset;  // in the tensor, elements
  std::vector<int64_t> size;
  std::vector<int64_t> local;  // in the fragment, whose dimensions are the layout's
};

// The boxes of the fragment at `position`, ascending; none if it has no elements. A 0-d fragment is one 0-d box. An
// interval of flattened dimensions becomes several boxes.
std::vector<FragmentBox> FragmentBoxes(const Layout& layout, int64_t position);

// Where a box of the tensor begins in the fragment. The box lies within one box of the fragment.
std::vector<int64_t> LocalOffset(const Layout& layout, int64_t position, absl::Span<const int64_t> offset);

// Addresses what lies at `local` in a fragment with the tensor's dimensions: where it begins, and strides that hold
// within one box of the fragment.
struct InFragment {
  int64_t elements = 0;  // from the fragment's first element
  Dims strides;          // in elements, one per dimension of the tensor
};
InFragment At(const Layout& layout, absl::Span<const int64_t> local, absl::Span<const int64_t> strides);

// Copies between dense memory of a box, row-major, and its place in a strided fragment.
StridedCopy BoxToFragment(absl::Span<const int64_t> size, absl::Span<const int64_t> local, int64_t element,
                          absl::Span<const int64_t> strides);
StridedCopy FragmentToBox(absl::Span<const int64_t> size, absl::Span<const int64_t> local, int64_t element,
                          absl::Span<const int64_t> strides);

}  // namespace reshard::live

#endif  // RESHARD_CHECKPOINT_LIVE_FRAGMENT_H_
