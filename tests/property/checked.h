// A plan before `reshard check`: its JSON, with pieces and without, is judged by code that shares nothing with the
// planner.
#ifndef RESHARD_TESTS_PROPERTY_CHECKED_H_
#define RESHARD_TESTS_PROPERTY_CHECKED_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "reshard/check/check.h"
#include "reshard/planner/plan.h"
#include "reshard/planner/report.h"

namespace reshard::testing {

// What the judge finds; empty when the plan agrees with what is derived from its layouts.
inline std::string Disagreement(const Plan& plan) {
  for (const bool with_pieces : {false, true}) {
    const auto json = PlanToJson(plan, with_pieces);
    if (!json.ok()) return absl::StrCat("no JSON: ", json.status().ToString());
    const auto report = CheckPlans(*json);
    if (!report.ok()) return absl::StrCat("it cannot be judged: ", report.status().ToString());
    if (!report->agrees()) return absl::StrCat(with_pieces ? "with" : "without", " pieces:\n", CheckToText(*report));
  }
  return "";
}

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_PROPERTY_CHECKED_H_
