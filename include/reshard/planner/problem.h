// One tensor to move: the input of MakePlan, one tensor of a batch, and the cache key for either.
#ifndef RESHARD_PLANNER_PROBLEM_H_
#define RESHARD_PLANNER_PROBLEM_H_

#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"

namespace reshard {

// A value type; copying, hashing and comparing unequal problems take constant time.
struct Problem {
  Layout source;               // before
  Layout target;               // after; of the same shape, over the same mesh or a different one
  DType dtype = DType::kBF16;  // of the elements

  // Same layouts as written. Equivalent problems that are written differently are planned twice.
  bool operator==(const Problem&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Problem& problem) {
    return H::combine(std::move(h), problem.source, problem.target, problem.dtype);
  }
};

// From the text forms of docs/layouts.md. target_mesh may be empty: both layouts are then over `mesh`. InvalidArgument:
// text that does not parse.
absl::StatusOr<Problem> ParseProblem(std::string_view mesh, std::string_view source, std::string_view target,
                                     std::string_view target_mesh, DType dtype);

}  // namespace reshard

#endif  // RESHARD_PLANNER_PROBLEM_H_
