#include "planner/candidates/searched.h"

#include <utility>

namespace reshard::candidates {

Proposal Searched(const Task& task, const SoFar& so_far) {
  if (!task.model) return {};
  const bool beside_exchange = task.options.ops.contains(Op::kExchange) && so_far.single_step;
  Proposal out;
  out.search = sequence::SearchSequence(*task.model, task.dtype, task.options, so_far.cheapest,
                                        beside_exchange ? kBudgetBesideExchange : kBudgetAlone);
  if (out.search->found) out.chains.push_back(out.search->steps);
  return out;
}

}  // namespace reshard::candidates
