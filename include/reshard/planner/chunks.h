// Overlapping steps. On a network with levels the steps of a plan use different links: while one part of the tensor
// crosses between domains, the next can already move within them. So the tensor is cut into chunks. All of them go
// through the same steps, each chunk one step behind the one before it:
//
//   turn      0    1    2    3    4    5
//   step 1    c0   c1   c2   c3
//   step 2         c0   c1   c2   c3
//   step 3              c0   c1   c2   c3
//
// Each turn is one exchange; no step is an AllReduce, which takes two. Instead of the sum over steps, a plan takes
// about as long as the busiest level, plus one chunk's way through the others.
#ifndef RESHARD_PLANNER_CHUNKS_H_
#define RESHARD_PLANNER_CHUNKS_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"

namespace reshard {

// How a tensor is cut. Along dimension `dim` it consists of blocks of `block` elements, no layout of the plan cuts
// within one, and each chunk takes an equal part of every block: chunk c takes the indices i with
//   c <= (i mod block) / (block / count) < c + 1.
// So every device holds an equal part of its fragment in each chunk, and all chunks move alike.
struct Chunks {
  int64_t count = 1;  // 1: the steps run one after the other
  int dim = 0;        // index of a tensor dimension
  int64_t block = 0;  // in elements along dim, a multiple of count
  bool operator==(const Chunks&) const = default;

  // Turns that a chain of `steps` steps takes.
  int64_t Turns(int64_t steps) const { return steps == 0 ? 0 : steps + count - 1; }
  // The steps that run in a turn: step s with chunk turn - s.
  Interval StepsIn(int64_t turn, int64_t steps) const {
    return {std::max<int64_t>(0, turn - count + 1), std::min(turn + 1, steps)};
  }
};

// The largest block size along dimension `dim`, in elements: the layout cuts only between runs of this length, and
// every possible block size divides it. 0: the layout cuts unevenly, so there are no blocks.
int64_t LargestBlock(const Layout& layout, int dim);

// The layout of one chunk, in which dimension `dim` becomes two: the blocks, cut as the layout cuts the dimension, and
// the chunk's part of a block, which is not cut. InvalidArgument: the layout cuts within blocks.
absl::StatusOr<Layout> OfChunk(const Layout& layout, const Chunks& chunks);

}  // namespace reshard

#endif  // RESHARD_PLANNER_CHUNKS_H_
