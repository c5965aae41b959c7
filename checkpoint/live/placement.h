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

// Maximum number of threads that read or write files on a rank, beside its computation.
inline constexpr int kMostThreads = 4;

struct Placement {
  Layout layout;
  int64_t position = -1;  // of this rank in the mesh; -1: not in the mesh
};

// Finds the placements of a rank's tensors. Looks at each mesh once.
class Placements {
 public:
  // `communicator` must outlive it.
  explicit Placements(const Communicator& communicator) : communicator_(communicator) {}
  // This rank's placement in the layout. InvalidArgument: partial values (nothing can be loaded into or saved from them
  // before they are reduced), a mesh with devices that the communicator does not have.
  absl::StatusOr<Placement> Find(const Layout& layout);

 private:
  const Communicator& communicator_;
  absl::flat_hash_map<Mesh, int64_t> positions_;  // of this rank, in meshes whose devices are all ranks
};

// InvalidArgument unless the view is this rank's fragment: its dtype and local shape, in host memory; no elements if
// the rank is not in the mesh.
absl::Status CheckFragment(const Placement& placement, DType dtype, const ConstTensorView& view);

// The layout itself; for a 0-d tensor, a layout of one dimension with the same element, which can be sharded.
Layout AtLeastOneDimension(const Layout& layout);

}  // namespace reshard::live

#endif  // RESHARD_CHECKPOINT_LIVE_PLACEMENT_H_
