#include "reshard/planner/planner.h"

#include "planner/choice/choice.h"
#include "status/no_throw.h"

namespace reshard {

absl::StatusOr<Plan> MakePlan(const Problem& problem, const PlanOptions& options) {
  return status::NoThrow("planning", [&] { return choice::Choice(problem, options).Make(); });
}

absl::StatusOr<std::vector<Plan>> CandidatePlans(const Problem& problem, const PlanOptions& options) {
  return status::NoThrow("planning", [&] { return choice::Choice(problem, options).MakeAll(); });
}

}  // namespace reshard
