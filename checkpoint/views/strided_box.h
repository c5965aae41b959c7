// Maps the elements of a box of a view to elements of tensors.
#ifndef RESHARD_CHECKPOINT_VIEWS_STRIDED_BOX_H_
#define RESHARD_CHECKPOINT_VIEWS_STRIDED_BOX_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "checkpoint/views/node.h"

namespace reshard::views {

// Elements of a tensor, and where they go: those at index at + sum(i_l * step_l in dimension dim_l) go to element
// to + sum(i_l * to_l) of a buffer, for all values 0 <= i_l < count_l of the loops. Several loops may be of one
// dimension. Every operation of a Node makes one of these from one, except a concatenation and a reshape that cuts.
struct StridedBox {
  struct Loop {
    size_t dim = 0;
    int64_t count = 0;  // at least 2
    int64_t step = 0;   // at least 1
    int64_t to = 0;
  };
  std::vector<int64_t> at;  // one per dimension
  int64_t to = 0;
  std::vector<Loop> loops;

  // The box at that offset into a dense row-major buffer. Requires that it has elements.
  static StridedBox Of(absl::Span<const int64_t> offset, absl::Span<const int64_t> size);
  // Keeps only `count` iterations of a loop, beginning with the first-th; a single one needs no loop.
  void Narrow(size_t loop, int64_t first, int64_t count);
  // The number of elements.
  int64_t Elements() const;
  // The largest index that occurs in a dimension.
  int64_t Last(size_t dim) const;
};

// What elements of a leaf, a kTensor, kConstant or kDequantize node, become on their way out: one cast after the other.
using Casts = std::vector<DType>;
using LeafVisitor = absl::FunctionRef<absl::Status(const Node& leaf, const StridedBox& box, const Casts& casts)>;

// Calls `visit` for the leaves in the box of a view, until one returns an error. Each element of the
// buffer comes once. The boxes are as few as the shapes allow: one for each input of a concatenation that is met, and
// where a reshape cuts rows, those at both ends of a run on their own.
absl::Status VisitLeaves(const Node& view, const StridedBox& box, LeafVisitor visit);

}  // namespace reshard::views

#endif  // RESHARD_CHECKPOINT_VIEWS_STRIDED_BOX_H_
