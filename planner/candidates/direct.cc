#include "planner/candidates/direct.h"

namespace reshard::candidates {

Proposal Direct(const Task& task, const SoFar&) {
  if (task.source.slot_dim() || task.target.slot_dim()) return {};  // see SlotTables
  if (task.reduces || (task.options.boxes_only && task.model)) return {};
  return {.chains = {{{cost::ChainStep::Kind::kMove, task.target}}}};
}

}  // namespace reshard::candidates
