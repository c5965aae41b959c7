// Chooses, over a whole batch, the first holder that sends shards of each tensor between meshes.
#ifndef RESHARD_PLANNER_BATCH_FIRST_HOLDERS_H_
#define RESHARD_PLANNER_BATCH_FIRST_HOLDERS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "planner/batch/step_loads.h"

namespace reshard::batch {

// One distinct plan: how many tensors have it, and its steps between meshes with what devices send in them.
struct HolderChoice {
  int64_t tensors = 0;
  std::vector<std::pair<HolderRotation, std::vector<Load>>> steps;
};

// One list per plan: the first holders of its tensors, in their order.
//
// Tensors of one plan take all different choices in turn, as long as there is a full round of them: the load of their
// senders is then exactly even, and consecutive tensors have different senders. The remaining tensors are placed one by
// one, the largest first, where the busiest sender that they touch stays least busy.
std::vector<std::vector<int64_t>> ChooseFirstHolders(absl::Span<const HolderChoice> plans, size_t num_devices);

}  // namespace reshard::batch

#endif  // RESHARD_PLANNER_BATCH_FIRST_HOLDERS_H_
