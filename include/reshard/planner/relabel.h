// Which device gets which shard, where the caller does not care: the assignment that moves the fewest bytes.
#ifndef RESHARD_PLANNER_RELABEL_H_
#define RESHARD_PLANNER_RELABEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"
#include "reshard/planner/batch.h"

namespace reshard {

struct Relabeling {
  // The target's axes over the same devices in the order to use; equal to the target's mesh when no order is better.
  std::shared_ptr<const Mesh> target_mesh;
  // What devices lack under the target's own mesh and under this one, all together: what has to be received.
  int64_t bytes_before = 0;
  int64_t bytes = 0;

  // The devices in row-major order of the mesh.
  std::vector<int64_t> devices() const;
};

// Among all orders of the target mesh's devices one under which the devices hold most of what they need already, which
// is found exactly (linear assignment). Post-conditions: no order moves fewer bytes; of those that move as few, none
// leaves more devices where they were; deterministic.
// Errors: InvalidArgument (shapes differ, bytes that do not fit 64 bits), Unimplemented (values that are still partial:
// reduce them first), ResourceExhausted (more than 4096 devices that all hold and need different shards).
absl::StatusOr<Relabeling> Relabel(const Layout& source, const Layout& target, DType dtype);
// One order for all tensors of a batch, whose targets must be over one mesh (InvalidArgument). Errors name the tensor.
absl::StatusOr<Relabeling> Relabel(absl::Span<const BatchProblem> problems);

// The same layout over another mesh with the same axes; InvalidArgument when they are not the same.
absl::StatusOr<Layout> OnMesh(const Layout& layout, std::shared_ptr<const Mesh> mesh);

}  // namespace reshard

#endif  // RESHARD_PLANNER_RELABEL_H_
