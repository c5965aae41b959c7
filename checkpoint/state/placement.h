// Where a tensor of a running job lies: its layout, and which part of it is this rank's.
#ifndef RESHARD_CHECKPOINT_STATE_PLACEMENT_H_
#define RESHARD_CHECKPOINT_STATE_PLACEMENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/tensor_view.h"

namespace reshard {

struct Placement {
  Layout layout;
  int64_t position = -1;  // of this rank in the mesh; -1: it is not in it
};

// Parses; tensors of one mesh share it.
class Placements {
 public:
  // InvalidArgument: bad text, pending reductions (there is nothing to load into or save from before they are reduced),
  // a mesh with devices that the communicator does not have.
  absl::StatusOr<Placement> Find(std::string_view mesh, std::string_view layout, const Communicator& communicator);

 private:
  absl::flat_hash_map<std::string, std::shared_ptr<const Mesh>> meshes_;
};

// InvalidArgument unless the view is this rank's fragment: its dtype and local shape, memory of the host; no elements
// where the rank is not in the mesh.
absl::Status CheckFragment(const Placement& placement, DType dtype, const ConstTensorView& view);

// The layout itself, or, for a 0-d tensor, that of the same element in one dimension, which can be sharded.
Layout AtLeastOneDimension(const Layout& layout);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_STATE_PLACEMENT_H_
