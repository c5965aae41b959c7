// Combines the contributions of several ranks element by element.
#ifndef RESHARD_RUNTIME_HOST_REDUCE_H_
#define RESHARD_RUNTIME_HOST_REDUCE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"
#include "reshard/planner/plan.h"
#include "reshard/runtime/strided_copy.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard::host {

// OK if ReduceBox can combine elements of this type:
//   sum, avg, min, max, prod   integers and f8, f16, bf16, f32, f64
//   sum, avg, prod             complex
//   sum = max = or, prod = min = and   bool
// InvalidArgument, with the operation and the type: the operation has no meaning for the type (min or max of complex
// numbers, avg of bools).
absl::Status CheckReduction(ReduceOp op, DType dtype);

// One rank's values: the address of index (0, 0, ..) of the box, and the strides in elements.
struct Contribution {
  const void* data = nullptr;
  absl::Span<const int64_t> strides;
};

// Post-condition: for every index of the box, out[index] = op over the contributions of contribution[index], combined
// in the given order and rounded once: f8, f16 and bf16 are combined in f32. Integer sums and products wrap, integer
// averages are summed exactly and truncated toward zero; min and max propagate NaNs. An empty box writes nothing.
// Requires CheckReduction(op, dtype).ok() and at least one contribution. `out` must not overlap a contribution. `mode`
// applies to the writes of long rows of the result.
void ReduceBox(ReduceOp op, DType dtype, absl::Span<const int64_t> box, absl::Span<const Contribution> contributions,
               void* out, absl::Span<const int64_t> out_strides, CopyMode mode = CopyMode::kCached);

// Where the element at that index is, in bytes from the first one.
inline int64_t OffsetBytes(absl::Span<const int64_t> index, absl::Span<const int64_t> strides, DType dtype) {
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d) offset += index[d] * strides[d];
  return offset * SizeOf(dtype);
}

// A box of a fragment: the index of its first element and its sizes.
using VisitBox = absl::FunctionRef<void(absl::Span<const int64_t> offset, absl::Span<const int64_t> sizes)>;

// Cuts the elements [begin, end) of a fragment, numbered in row-major order, into boxes, at most two per dimension plus
// one, and visits them in order.
void ForEachBox(absl::Span<const int64_t> shape, int64_t begin, int64_t end, VisitBox visit);

// A box that is at `from` in one fragment and at `to` in the other.
using VisitMappedBox = absl::FunctionRef<void(absl::Span<const int64_t> from, absl::Span<const int64_t> to,
                                              absl::Span<const int64_t> sizes)>;

// The same for the `to` side of a region that covers all of `shape`: boxes are cut further where a run ends.
void ForEachMappedBox(const Region& region, absl::Span<const int64_t> shape, int64_t begin, int64_t end,
                      VisitMappedBox visit);

// What one rank contributes to an output.
struct RankValues {
  const void* data = nullptr;
  // In the rank's fragment, which starts at `data`: the fragment's strides. In a message: empty; its elements are dense
  // in the shape of the output.
  absl::Span<const int64_t> strides;
  int64_t skipped = 0;  // in a message: byte of the output that `data` is the value for
};

// Writes elements [begin, end) of the output, numbered in row-major order, as ReduceBox does. `region` goes from any of
// the fragments to the output, which it covers completely; it is the same for all of them.
void ReduceRange(ReduceOp op, const Region& region, absl::Span<const RankValues> values, const TensorView& out,
                 int64_t begin, int64_t end, CopyMode mode = CopyMode::kCached);

}  // namespace reshard::host

#endif  // RESHARD_RUNTIME_HOST_REDUCE_H_
