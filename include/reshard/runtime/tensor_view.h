// Non-owning views of tensors in memory.
#ifndef RESHARD_RUNTIME_TENSOR_VIEW_H_
#define RESHARD_RUNTIME_TENSOR_VIEW_H_

#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "reshard/layout/dtype.h"

namespace reshard {

// Sizes, offsets or strides in elements, one per dimension.
using Dims = absl::InlinedVector<int64_t, 6>;

// The kind of memory that data is in, which decides which backends can move it.
enum class MemoryKind { kHost, kCuda };

// A tensor to read. The element at index (i0, i1, ..) is at data + SizeOf(dtype) * (i0*strides[0] + i1*strides[1] +
// ..). Strides may be zero or negative. A view without elements may have null data.
struct ConstTensorView {
  const void* data = nullptr;             // address of index (0, 0, ..)
  DType dtype = DType::kF32;              // of the elements
  Dims shape;                             // sizes in elements
  Dims strides;                           // in elements, one per dimension
  MemoryKind memory = MemoryKind::kHost;  // that `data` points into
};

// A tensor to write. No two indices may have the same address (see MayOverlapItself).
struct TensorView {
  void* data = nullptr;                   // address of index (0, 0, ..)
  DType dtype = DType::kF32;              // of the elements
  Dims shape;                             // sizes in elements
  Dims strides;                           // in elements, one per dimension
  MemoryKind memory = MemoryKind::kHost;  // that `data` points into

  // The same tensor, to read.
  // NOLINTNEXTLINE(google-explicit-constructor): a view of constant data is what every view is
  operator ConstTensorView() const { return {data, dtype, shape, strides, memory}; }
};

// Product of the sizes; 1 for a 0-d tensor. The shape must be that of a tensor in memory, so that the product fits.
int64_t NumElements(absl::Span<const int64_t> shape);

// Row-major strides without gaps, in elements: the last dimension has stride 1.
Dims DenseStrides(absl::Span<const int64_t> shape);

// A view of dense row-major host memory.
TensorView DenseView(void* data, DType dtype, absl::Span<const int64_t> shape);
// The same, to read.
ConstTensorView DenseView(const void* data, DType dtype, absl::Span<const int64_t> shape);

// True if the elements are in row-major order without gaps. Strides of dimensions of size 1 do not matter, and a view
// without elements is dense.
bool IsDense(const ConstTensorView& view);

// True if two indices may have the same address, so that the view cannot be written. Exact for views made by slicing,
// permuting and expanding; strides that interleave in other ways count as overlapping.
bool MayOverlapItself(const ConstTensorView& view);

// The address range [first, last) that a view with elements spans, gaps included.
std::pair<const char*, const char*> ByteSpan(const ConstTensorView& view);

// True if the address ranges of the two views intersect, gaps included.
bool SpansIntersect(const ConstTensorView& a, const ConstTensorView& b);

}  // namespace reshard

#endif  // RESHARD_RUNTIME_TENSOR_VIEW_H_
