#include "reshard/planner/planner.h"

#include <new>

#include "planner/search/choice.h"

namespace reshard {

absl::StatusOr<Plan> MakePlan(const Layout& source, const Layout& target, DType dtype, const PlanOptions& options) {
  try {
    return search::Choice(source, target, dtype, options).Make();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory while planning");
  }
}

absl::StatusOr<std::vector<Plan>> CandidatePlans(const Layout& source, const Layout& target, DType dtype,
                                                 const PlanOptions& options) {
  try {
    return search::Choice(source, target, dtype, options).MakeAll();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory while planning");
  }
}

}  // namespace reshard
