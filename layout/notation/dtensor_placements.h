// DTensor's placements as values, and the layout that they mean: the one translation for texts, for the DTensors of a
// job and for those in files of torch.save.
//
// A Shard or _StridedShard splits one tensor dimension along its mesh axis. The splits of a dimension are applied
//   - by their shard orders, where these are given; otherwise
//   - in the order of mesh axes that the split factors say, where they say one; otherwise
//   - from left to right.
// A split factor says where its axis comes: behind the axes of later placements of the dimension whose sizes multiply
// to it. FSDP2 over tensor parallelism, (_StridedShard(0, sf=tp), Shard(0)) over {dp, tp}, cuts along tp and then along
// dp. As in PyTorch, the factors of all dimensions say an order, or none does. In such an order every split cuts one
// interval, ceil by ceil as layouts do, so that it is exact for every size. In the two other cases a split works on
// what a device holds so far: _StridedShard(f) cuts that into f blocks, and each block along the mesh axis.
#ifndef RESHARD_LAYOUT_NOTATION_DTENSOR_PLACEMENTS_H_
#define RESHARD_LAYOUT_NOTATION_DTENSOR_PLACEMENTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "layout/draft.h"
#include "reshard/layout/layout.h"

namespace reshard::notation {

// What one mesh axis does with a tensor.
struct DTensorPlacement {
  enum class Kind { kReplicate, kShard, kPartial, kRagged };
  Kind kind = Kind::kReplicate;
  size_t column = 0;                    // in the text that says it, if one does
  size_t dim = 0;                       // kShard: less than the tensor's rank
  std::optional<int64_t> split_factor;  // kShard: that of a _StridedShard; kRagged: of a strided one; at least 1
  std::optional<int64_t> order;         // kShard: its place in the shard order of the dimension
  ReduceOp op = ReduceOp::kSum;         // kPartial
  // kRagged: the tensor's first dimensions up to and with this one are flattened, and cut into so many units each.
  size_t last_dim = 0;
  std::vector<int64_t> units;
};

// Why placements are not a layout.
struct DTensorRefusal {
  absl::StatusCode code = absl::StatusCode::kUnimplemented;  // or kInvalidArgument: they contradict each other
  int axis = 0;                                              // the mesh axis whose placement it is about
  std::string reason;
};

// Adds the factors and the partial reduction to a draft of the tensor's shape. Requires one placement per mesh axis.
std::optional<DTensorRefusal> AddPlacements(absl::Span<const DTensorPlacement> placements, const Mesh& mesh,
                                            layout::LayoutDraft* draft);

// The layout of a tensor of this shape. Requires one placement per mesh axis. InvalidArgument: placements that
// contradict each other, or sizes that no layout has. Unimplemented: well formed, but not a layout; the message says
// which placement is the reason and what to do.
absl::StatusOr<Layout> LayoutOfPlacements(absl::Span<const DTensorPlacement> placements, const Mesh& mesh,
                                          const std::vector<int64_t>& shape);

}  // namespace reshard::notation

#endif  // RESHARD_LAYOUT_NOTATION_DTENSOR_PLACEMENTS_H_
