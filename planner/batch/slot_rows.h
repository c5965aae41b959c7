// Tensors that a slot table cuts and nothing else: what moves are whole indices of its dimension, however the elements
// of an index are arranged. The gate, up and down projections of a mixture's experts have one plan:
//
//   [<ep={..}>256, 2048, 7168]  and  [<ep={..}>256, 7168, 2048]     256 indices of 14,680,064 elements
#ifndef RESHARD_PLANNER_BATCH_SLOT_ROWS_H_
#define RESHARD_PLANNER_BATCH_SLOT_ROWS_H_

#include <cstdint>
#include <optional>

#include "reshard/layout/layout.h"
#include "reshard/planner/plan.h"
#include "reshard/planner/problem.h"

namespace reshard::batch {

// What the plan of such a tensor depends on.
struct SlotRows {
  Mesh source_mesh, target_mesh;
  DimLayout source, target;  // the dimension that the table cuts
  int64_t before = 1;        // elements of the dimensions before it, all together
  int64_t after = 1;         // and of those after it
  DType dtype = DType::kBF16;

  // nullopt where no slot table cuts the pair, or something else does as well.
  static std::optional<SlotRows> Of(const Problem& problem);

  bool operator==(const SlotRows&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const SlotRows& rows) {
    return H::combine(std::move(h), rows.source_mesh, rows.target_mesh, rows.source, rows.target, rows.before,
                      rows.after, rows.dtype);
  }
};

// The plan of `problem`, from that of another with the same SlotRows, made with the same options. Post-condition: it is
// what MakePlan returns for `problem`. nullopt where the plan cuts a dimension that neither end cuts.
std::optional<Plan> WithDimsOf(const Problem& problem, const Plan& plan);

}  // namespace reshard::batch

#endif  // RESHARD_PLANNER_BATCH_SLOT_ROWS_H_
