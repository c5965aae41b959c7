// Plans for people and programs.
#ifndef RESHARD_PLANNER_REPORT_H_
#define RESHARD_PLANNER_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "reshard/planner/plan.h"
#include "reshard/planner/units.h"

namespace reshard {

// One line of JSON, schema reshard.plan/1 (docs/plan.schema.json), no trailing newline. `with_pieces` adds
// [step, sender, receiver, [offset...], [size...]] for every box that travels. ResourceExhausted above 10 million
// pieces.
absl::StatusOr<std::string> PlanToJson(const Plan& plan, bool with_pieces = false);

// A few lines: the steps, bytes, bound. Ends with a newline.
std::string PlanToText(const Plan& plan);

// An engineer's answer: every step with groups, bytes a device, peak memory, the lower bound and how near, what else
// was tried and why it lost.
std::string ExplainPlan(const Plan& plan);

// Pictures of who holds what. Terminal text for one layout; with `device` only what that device holds.
std::string DrawLayout(const Layout& layout, std::optional<int64_t> device = std::nullopt);
// The same as a stand-alone SVG document.
std::string LayoutToSvg(const Layout& layout, std::optional<int64_t> device = std::nullopt);
// One panel a layout of the plan, source to target, with the step between them.
std::string PlanToSvg(const Plan& plan);

}  // namespace reshard

#endif  // RESHARD_PLANNER_REPORT_H_
