// Problems over one mesh in which one dimension alone is cut, at one end at least by a slot table: whole indices of it
// move, however the elements of an index are arranged. The gate, up and down projections of a layer's experts share one
// plan:
//
//   [<ep={..}>256, 2048, 7168]  and  [<ep={..}>256, 7168, 2048]     256 indices of 14,680,064 elements
#ifndef RESHARD_PLANNER_BATCH_SLOT_ROWS_H_
#define RESHARD_PLANNER_BATCH_SLOT_ROWS_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "reshard/layout/layout.h"
#include "reshard/planner/plan.h"
#include "reshard/planner/problem.h"

namespace reshard::batch {

// What the plan of such a problem depends on.
struct SlotRows {
  Mesh mesh;
  DimLayout source, target;  // the dimension that the table cuts
  int64_t before = 1;        // elements of the dimensions before it, all together
  int64_t after = 1;         // and of those after it
  DType dtype = DType::kBF16;

  // nullopt if no slot table cuts either end, if any other dimension is cut, or if the meshes differ: between meshes a
  // plan may cut another dimension on the way, where that is long enough.
  static std::optional<SlotRows> Of(const Problem& problem);

  bool operator==(const SlotRows&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const SlotRows& rows) {
    return H::combine(std::move(h), rows.mesh, rows.source, rows.target, rows.before, rows.after, rows.dtype);
  }
};

// The plan of `problem`, from that of another with the same SlotRows, made with the same options. Requires a plan that
// does not go in chunks. Post-condition: it is what MakePlan returns for `problem`. nullopt where the plan cuts a
// dimension that neither end cuts.
std::optional<Plan> WithDimsOf(const Problem& problem, const Plan& plan);

}  // namespace reshard::batch

#endif  // RESHARD_PLANNER_BATCH_SLOT_ROWS_H_
