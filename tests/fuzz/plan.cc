// Any bytes as a plan to judge.
#include <nlohmann/json.hpp>

#include "reshard/check/check.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reshard;
  const absl::StatusOr<CheckReport> report = CheckPlans(testing::Text(data, size));
  if (!report.ok()) {
    testing::Promised(report.status().code() != absl::StatusCode::kInternal, "bad input is no internal error");
    return 0;
  }
  for (const PlanVerdict& plan : report->plans) {
    testing::Promised(plan.agrees() == (plan.status.ok() && plan.findings.empty()), "a plan agrees without findings");
    if (!plan.derived) continue;
    testing::Promised(plan.derived->recv_bytes_max >= 0 && plan.derived->recv_bytes_total >= 0, "nothing wraps");
    testing::Promised(plan.derived->peak_bytes.low <= plan.derived->peak_bytes.high, "a range is one");
  }
  const nlohmann::json json = nlohmann::json::parse(CheckToJson(*report), nullptr, /*allow_exceptions=*/false);
  testing::Promised(!json.is_discarded(), "a report is JSON");
  testing::Promised(!CheckToText(*report).empty() || report->plans.empty(), "a report says something");
  return 0;
}
