// The boxes into which a layout cuts a tensor, and which device stores each of them.
#ifndef RESHARD_CHECKPOINT_CATALOG_BOXES_H_
#define RESHARD_CHECKPOINT_CATALOG_BOXES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"

namespace reshard::catalog {

// Larger boxes are cut along their slowest dimensions: a box is the unit of work and of recovery, and its archive must
// stay below what StoredArchive can hold.
inline constexpr int64_t kLargestBox = int64_t{64} << 20;  // bytes

struct StoredBox {
  std::vector<int64_t> offset;  // in elements, one per dimension
  std::vector<int64_t> size;
  int64_t device = 0;  // id of the device that stores it: one of those that hold it
};

// Chooses devices so that all store about the same number of bytes, over all tensors that are added.
class BoxMaker {
 public:
  // The distinct boxes that the layout's devices hold, in ascending order of their offsets; boxes without elements are
  // left out, but a tensor without elements has one box, which is all of it. Deterministic.
  // InvalidArgument: partial values, which are not contents that a file could have. ResourceExhausted: more than
  // 2^24 boxes.
  absl::Status Add(const Layout& layout, DType dtype, std::vector<StoredBox>* boxes);
  // The device that stores least so far, for bytes that no layout places; device 0 if none has anything.
  int64_t LeastLoaded() const;
  void AddBytes(int64_t device, int64_t bytes) { loads_[device] += bytes; }

 private:
  int64_t Load(int64_t device) const;

  absl::flat_hash_map<int64_t, int64_t> loads_;  // device id -> bytes
};

// The boxes of at most `most` bytes that a box is cut into, in ascending order; itself when it is not larger. Cuts fall
// between indices of the slowest dimensions.
// A box is whatever has an offset and a size, one number per dimension; the parts have all else that it has, too.
template <typename Box>
std::vector<Box> CutBox(const Box& box, int64_t element_bytes, int64_t most) {
  int64_t row = element_bytes;
  size_t d = box.size.size();
  // The slowest dimension whose single index is small enough.
  while (d > 0 && row * box.size[d - 1] <= most) row *= box.size[--d];
  if (d == 0) return {box};
  --d;
  const int64_t step = std::max<int64_t>(1, most / row);
  std::vector<Box> parts;
  Box part = box;
  for (size_t outer = 0; outer < d; ++outer) part.size[outer] = 1;
  for (;;) {
    for (int64_t begin = 0; begin < box.size[d]; begin += step) {
      part.offset[d] = box.offset[d] + begin;
      part.size[d] = std::min(step, box.size[d] - begin);
      parts.push_back(part);
    }
    size_t outer = d;
    while (outer-- > 0) {
      if (++part.offset[outer] < box.offset[outer] + box.size[outer]) break;
      part.offset[outer] = box.offset[outer];
    }
    if (outer == static_cast<size_t>(-1)) return parts;
  }
}

// A part of a tensor that is one run of its elements, row-major.
struct Stripe {
  StoredBox box;
  int64_t first = 0;  // the number of its first element
  int64_t count = 0;  // of its elements
};
// The tensor in stripes of at most `most` bytes, in ascending order; none where it has no elements. Requires that the
// number of its elements fits 64 bits.
std::vector<Stripe> CutIntoStripes(absl::Span<const int64_t> shape, int64_t element_bytes, int64_t most);

}  // namespace reshard::catalog

#endif  // RESHARD_CHECKPOINT_CATALOG_BOXES_H_
