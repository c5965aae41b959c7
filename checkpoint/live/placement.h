// Where a tensor of a running job is: its layout, and which part of it this rank has.
#ifndef RESHARD_CHECKPOINT_LIVE_PLACEMENT_H_
#define RESHARD_CHECKPOINT_LIVE_PLACEMENT_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard::live {

// Threads that read or write files beside the rank that computes.
inline constexpr int kMostThreads = 4;

struct Placement {
  Layout layout;
  int64_t position = -1;  // of this rank in the mesh; -1: it is not in it
};

// The placements of a rank's tensors. Each mesh is looked at once.
class Placements {
 public:
  // `communicator` must outlive it.
  explicit Placements(const Communicator& communicator) : communicator_(communicator) {}
  // InvalidArgument: partial values (there is nothing to load into or save from before they are reduced), a mesh
  // with devices that the communicator does not have.
  absl::StatusOr<Placement> Find(const Layout& layout);

 private:
  const Communicator& communicator_;
  absl::flat_hash_map<Mesh, int64_t> positions_;  // of this rank, in meshes whose devices are all ranks
};

// InvalidArgument unless the view is this rank's fragment: its dtype and local shape, memory of the host; no elements
// where the rank is not in the mesh.
absl::Status CheckFragment(const Placement& placement, DType dtype, const ConstTensorView& view);

// The layout itself, or, for a 0-d tensor, that of the same element in one dimension, which can be sharded.
Layout AtLeastOneDimension(const Layout& layout);

}  // namespace reshard::live

#endif  // RESHARD_CHECKPOINT_LIVE_PLACEMENT_H_
