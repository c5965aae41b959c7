#include "reshard/check/check.h"

#include <algorithm>
#include <exception>
#include <new>

#include "absl/strings/str_cat.h"
#include "check/judge.h"
#include "status/macros.h"

namespace reshard {

bool CheckReport::agrees() const {
  return std::all_of(plans.begin(), plans.end(), [](const PlanVerdict& plan) { return plan.agrees(); });
}

absl::Status CheckReport::status() const {
  for (size_t i = 0; i < plans.size(); ++i) {
    const absl::Status& status = plans[i].status;
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat("plans[", i, "]: ", status.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckReport> CheckPlans(std::string_view text) {
  if (text.size() > kMaxPlanText) {
    return absl::ResourceExhaustedError(absl::StrCat("the text has more than ", kMaxPlanText, " bytes"));
  }
  try {
    ASSIGN_OR_RETURN(auto read, plan_text::ReadText(text));
    CheckReport report;
    report.batch = read.batch;
    for (plan_text::ReadPlan& plan : read.plans) {
      PlanVerdict& verdict = report.plans.emplace_back();
      if (plan.status.ok()) {
        verdict = check::PlanJudge(std::move(plan.plan), std::move(plan.findings)).Run();
      } else {
        verdict.name = plan.plan.name;
        verdict.status = plan.status;
      }
      if (!report.batch && !verdict.status.ok()) return verdict.status;
    }
    return report;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory while judging a plan");
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("exception while judging a plan: ", error.what()));
  }
}

}  // namespace reshard
