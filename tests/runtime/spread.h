// A fragment in memory of its own, its dimensions in the opposite order and with gaps.
#ifndef RESHARD_TESTS_RUNTIME_SPREAD_H_
#define RESHARD_TESTS_RUNTIME_SPREAD_H_

#include <algorithm>
#include <vector>

#include "reshard/runtime/program.h"

namespace reshard::testing {

inline constexpr char kGap = 0x5A;

struct Spread {
  Dims shape;
  Dims strides;
  DType dtype;
  std::vector<char> memory;

  explicit Spread(const Buffer& buffer) : shape(buffer.shape), strides(buffer.shape.size()), dtype(buffer.dtype) {
    int64_t stride = 2;
    for (size_t d = 0; d < shape.size(); ++d) {
      strides[d] = stride;
      stride *= std::max<int64_t>(shape[d], 1) + 1;
    }
    memory.assign(static_cast<size_t>(stride * SizeOf(dtype)), kGap);
  }
  TensorView View() { return {memory.data(), dtype, shape, strides}; }

  void CopyFrom(const void* dense) {
    StridedCopy(WholeRegion(shape), SizeOf(dtype), DenseStrides(shape), strides).Run(dense, memory.data());
  }
  void CopyTo(void* dense) const {
    StridedCopy(WholeRegion(shape), SizeOf(dtype), strides, DenseStrides(shape)).Run(memory.data(), dense);
  }
  // Paints the elements over; true when nothing between them was touched.
  bool GapsIntact() {
    const std::vector<char> paint(static_cast<size_t>(NumElements(shape) * SizeOf(dtype)), kGap);
    CopyFrom(paint.data());
    return std::all_of(memory.begin(), memory.end(), [](char byte) { return byte == kGap; });
  }
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_RUNTIME_SPREAD_H_
