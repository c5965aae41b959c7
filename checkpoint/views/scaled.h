// Quantized values times their scales, box by box.
#ifndef RESHARD_CHECKPOINT_VIEWS_SCALED_H_
#define RESHARD_CHECKPOINT_VIEWS_SCALED_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/views/node.h"
#include "reshard/layout/dtype.h"

namespace reshard::views {

// Whether values of that type are dequantized: 8-bit floats and i8.
bool IsQuantized(DType dtype);

// A kDequantize node. `block` are the sizes of a block in the last dimensions of the values, -1 for all of one.
// InvalidArgument: a type that values, scales or the result cannot have; scales of another number or shape than the
// blocks have; too many bytes.
absl::StatusOr<Node> Dequantize(Node values, Node scales, absl::Span<const int64_t> block, DType dtype);

// Also a kDequantize node: all elements times `by`, in f32, as the dtype that they have. InvalidArgument: that is none
// of f32, f16 and bf16; `by` is not finite as f32.
absl::StatusOr<Node> Multiply(Node input, double by);

// A box of the scales of a kDequantize node.
struct ScaleBox {
  std::vector<int64_t> offset, size;  // one per dimension
};

// The scales of the blocks that a box of the node meets: at most one per element. Requires that the box has elements.
ScaleBox ScalesOf(const Node& node, absl::Span<const int64_t> offset, absl::Span<const int64_t> size);

// Calls `take` with the products of a box of the node, in f32, in row-major order and a few at a time; `first` is the
// number of the first of them. `values` and `scales` are dense and row-major: those of the box, and of its ScalesOf.
void VisitScaled(const Node& node, absl::Span<const int64_t> offset, absl::Span<const int64_t> size, const char* values,
                 const char* scales, absl::FunctionRef<void(absl::Span<const float> run, int64_t first)> take);

}  // namespace reshard::views

#endif  // RESHARD_CHECKPOINT_VIEWS_SCALED_H_
