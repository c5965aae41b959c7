// Chooses which device gets which shard so that the fewest bytes move, for callers that accept any choice.
#ifndef RESHARD_PLANNER_RELABEL_H_
#define RESHARD_PLANNER_RELABEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/mesh.h"
#include "reshard/planner/problem.h"

namespace reshard {

// An order of the target's devices, and what it saves.
struct Relabeling {
  // The target's axes over the same devices, reordered; equal to the target's mesh if no order is better.
  Mesh target_mesh;
  int64_t bytes_before = 0;  // received by all devices together under the target's own mesh
  int64_t bytes = 0;         // the same under target_mesh

  // Device ids in row-major order of target_mesh.
  std::vector<int64_t> devices() const;
};

// Finds, exactly (by linear assignment), an order of the target mesh's devices under which they already hold as much of
// what they need as possible. Post-conditions: no order moves fewer bytes; of those that move as few, none leaves more
// devices where they were; deterministic.
// Errors: InvalidArgument (shapes differ, byte counts do not fit in 64 bits), Unimplemented (partial values: reduce
// them first), ResourceExhausted (more than 4096 devices that all hold and need different shards).
absl::StatusOr<Relabeling> Relabel(const Problem& problem);
// One order for all tensors of a batch, whose targets must be over one mesh (else InvalidArgument). Errors name the
// tensor they are about, as those of PlanBatch do.
absl::StatusOr<Relabeling> Relabel(absl::Span<const Problem> problems, absl::Span<const std::string> names = {});

// The same layout over another mesh, which must have the same axes (else InvalidArgument).
absl::StatusOr<Layout> OnMesh(const Layout& layout, const Mesh& mesh);

}  // namespace reshard

#endif  // RESHARD_PLANNER_RELABEL_H_
