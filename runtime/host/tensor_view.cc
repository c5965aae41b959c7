#include "reshard/runtime/tensor_view.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace reshard {
int64_t NumElements(absl::Span<const int64_t> shape) {
  int64_t product = 1;
  for (int64_t size : shape) product *= size;
  return product;
}

Dims DenseStrides(absl::Span<const int64_t> shape) {
  Dims strides(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= shape[d];
  }
  return strides;
}

TensorView DenseView(void* data, DType dtype, absl::Span<const int64_t> shape) {
  return {data, dtype, Dims(shape.begin(), shape.end()), DenseStrides(shape), MemoryKind::kHost};
}

ConstTensorView DenseView(const void* data, DType dtype, absl::Span<const int64_t> shape) {
  return {data, dtype, Dims(shape.begin(), shape.end()), DenseStrides(shape), MemoryKind::kHost};
}

bool IsDense(const ConstTensorView& view) {
  if (NumElements(view.shape) == 0) return true;
  int64_t expected = 1;
  for (size_t d = view.shape.size(); d-- > 0;) {
    if (view.shape[d] == 1) continue;
    if (view.strides[d] != expected) return false;
    expected *= view.shape[d];
  }
  return true;
}

bool MayOverlapItself(const ConstTensorView& view) {
  if (NumElements(view.shape) == 0) return false;
  // Sorted by stride, every dimension must step over all that the ones before it reach.
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t d = 0; d < view.shape.size(); ++d) {
    if (view.shape[d] > 1) dims.emplace_back(std::abs(view.strides[d]), view.shape[d]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

std::pair<const char*, const char*> ByteSpan(const ConstTensorView& view) {
  int64_t low = 0;
  int64_t high = 0;
  for (size_t d = 0; d < view.shape.size(); ++d) {
    const int64_t reach = (view.shape[d] - 1) * view.strides[d];
    (reach < 0 ? low : high) += reach;
  }
  const int64_t size = SizeOf(view.dtype);
  const char* data = static_cast<const char*>(view.data);
  return {data + low * size, data + (high + 1) * size};
}

bool SpansIntersect(const ConstTensorView& a, const ConstTensorView& b) {
  if (NumElements(a.shape) == 0 || NumElements(b.shape) == 0) return false;
  const auto [a_first, a_last] = ByteSpan(a);
  const auto [b_first, b_last] = ByteSpan(b);
  return std::less<>()(a_first, b_last) && std::less<>()(b_first, a_last);
}

}  // namespace reshard
