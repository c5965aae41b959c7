#include "reshard/planner/planner.h"

#include "layout/flatten.h"
#include "planner/choice/choice.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard {

namespace {

// Steps are layouts over common dimensions.
absl::StatusOr<Problem> OverCommonDims(const Problem& problem) {
  ASSIGN_OR_RETURN(const auto ends, layout::OverCommonDims(problem.source, problem.target));
  return Problem{ends.first, ends.second, problem.dtype};
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const Problem& problem, const PlanOptions& options) {
  return status::NoThrow("planning", [&]() -> absl::StatusOr<Plan> {
    ASSIGN_OR_RETURN(const Problem common, OverCommonDims(problem));
    return choice::Choice(common, options).Make();
  });
}

absl::StatusOr<std::vector<Plan>> CandidatePlans(const Problem& problem, const PlanOptions& options) {
  return status::NoThrow("planning", [&]() -> absl::StatusOr<std::vector<Plan>> {
    ASSIGN_OR_RETURN(const Problem common, OverCommonDims(problem));
    return choice::Choice(common, options).MakeAll();
  });
}

}  // namespace reshard
