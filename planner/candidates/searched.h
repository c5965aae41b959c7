// The exact search of sequence/, as a family, and its budget.
#ifndef RESHARD_PLANNER_CANDIDATES_SEARCHED_H_
#define RESHARD_PLANNER_CANDIDATES_SEARCHED_H_

#include <cstdint>

#include "planner/candidates/family.h"

namespace reshard::candidates {

// Most states that the search may generate. If an Exchange is available, it bounds the cost, and the search only looks
// for something cheaper, in well under a millisecond. If it is not, the search is exact for up to six digits, and
// beyond that stops after about 50 ms with a bound on the gap. Counted in states, so that every machine stops at the
// same plan.
inline constexpr int64_t kBudgetBesideExchange = 2000;
inline constexpr int64_t kBudgetAlone = 150'000;

// The cheapest sequence of named ops, if it is cheaper than all candidates so far and the pair fits the digit model.
Proposal Searched(const Task& task, const SoFar& so_far);

}  // namespace reshard::candidates

#endif  // RESHARD_PLANNER_CANDIDATES_SEARCHED_H_
