// A tensor in memory that somebody else owns: where it starts, what its elements are, and how to walk it.
#ifndef RESHARD_RUNTIME_TENSOR_VIEW_H_
#define RESHARD_RUNTIME_TENSOR_VIEW_H_

#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "reshard/layout/dtype.h"

namespace reshard {

// Sizes, offsets or strides, one a dimension.
using Dims = absl::InlinedVector<int64_t, 6>;

// Which kind of memory the data lies in, and therefore which backends can move it.
enum class MemoryKind { kHost, kCuda };

// The element at index (i0, i1, ..) lies at data + SizeOf(dtype) * (i0*strides[0] + i1*strides[1] + ..). Strides count
// elements; they may be zero or negative in a view that is only read. A view without elements may have null data.
struct ConstTensorView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  Dims shape;
  Dims strides;
  MemoryKind memory = MemoryKind::kHost;
};

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Dims shape;
  Dims strides;
  MemoryKind memory = MemoryKind::kHost;

  // NOLINTNEXTLINE(google-explicit-constructor): a view of constant data is what every view is
  operator ConstTensorView() const { return {data, dtype, shape, strides, memory}; }
};

// Product of the sizes; 1 for a 0-d tensor. The sizes come from a tensor in memory, so the product fits.
int64_t NumElements(absl::Span<const int64_t> shape);

// Row-major strides without gaps: the last dimension has stride 1.
Dims DenseStrides(absl::Span<const int64_t> shape);

// Views of dense row-major memory.
TensorView DenseView(void* data, DType dtype, absl::Span<const int64_t> shape);
ConstTensorView DenseView(const void* data, DType dtype, absl::Span<const int64_t> shape);

// True when the elements lie in row-major order without gaps. Strides of dimensions of size 1 do not matter, and a view
// without elements is dense.
bool IsDense(const ConstTensorView& view);

// True when two indices may name the same element, so that the view cannot be written to. Exact for the views that
// slicing, permuting and expanding make; strides that interleave in other ways count as overlapping.
bool MayOverlapItself(const ConstTensorView& view);

// The bytes [first, last) that a view with elements spans, gaps included.
std::pair<const char*, const char*> ByteSpan(const ConstTensorView& view);

// True when the bytes that the two views span have a byte in common (gaps between elements count as spanned).
bool SpansIntersect(const ConstTensorView& a, const ConstTensorView& b);

}  // namespace reshard

#endif  // RESHARD_RUNTIME_TENSOR_VIEW_H_
