// The two layouts of a problem that was made from bytes, and what properties of plans compare.
#ifndef RESHARD_TESTS_PROPERTY_ENDS_H_
#define RESHARD_TESTS_PROPERTY_ENDS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "reshard/planner/plan.h"
#include "tests/layouts.h"
#include "tests/property.h"
#include "tests/property/problems.h"

namespace reshard::testing {

inline constexpr Objective kObjectives[] = {Objective::kTime, Objective::kBytes, Objective::kSteps};
inline constexpr Flavour kDigits = {.sub_axes = true, .digits = true};
inline constexpr Flavour kUneven = {.uneven = true, .sub_axes = true, .digits = true, .sizes = true};
inline constexpr Flavour kTwoMeshes = {
    .uneven = true, .sub_axes = true, .digits = true, .sizes = true, .two_meshes = true};
inline constexpr Flavour kPartial = {.uneven = true, .sub_axes = true, .digits = true, .sizes = true, .partial = true};

struct Ends {
  RandomProblem problem;
  Layout from;
  Layout to;
};

// Inside a property: texts that do not parse falsify it.
inline Ends EndsOf(RandomProblem problem) {
  auto from = ParseLayout(problem.from, problem.mesh);
  auto to = ParseLayout(problem.to, problem.target_mesh);
  RC_ASSERT(from.ok());
  RC_ASSERT(to.ok());
  return {std::move(problem), *std::move(from), *std::move(to)};
}

inline RandomProblem ProblemFrom(const std::vector<uint8_t>& bytes, const Flavour& flavour) {
  Choices choices(bytes);
  RandomProblem problem = MakeProblem(choices, flavour);
  RC_LOG() << problem.Text() << "\n";
  return problem;
}

inline Ends EndsFrom(const std::vector<uint8_t>& bytes, const Flavour& flavour) {
  return EndsOf(ProblemFrom(bytes, flavour));
}

// What the plan's objective counts.
inline int64_t Value(const Plan& plan) {
  if (plan.options.objective == Objective::kTime) return plan.totals.time_ns;
  if (plan.options.objective == Objective::kSteps) return static_cast<int64_t>(plan.steps.size());
  return plan.totals.recv_bytes_max;
}

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_PROPERTY_ENDS_H_
