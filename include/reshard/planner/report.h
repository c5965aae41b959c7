// Plans as text, JSON and pictures.
#ifndef RESHARD_PLANNER_REPORT_H_
#define RESHARD_PLANNER_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "reshard/planner/plan.h"
#include "reshard/planner/units.h"

namespace reshard {

// One line of JSON, schema reshard.plan/1 (docs/plan.schema.json), without a newline. `with_pieces` adds
// [step, sender, receiver, [offset...], [size...]] for every box that travels, in elements of the tensor.
// ResourceExhausted above 10 million pieces.
absl::StatusOr<std::string> PlanToJson(const Plan& plan, bool with_pieces = false);

// A few lines: the steps, their bytes, and the bound. Ends with a newline.
std::string PlanToText(const Plan& plan);

// The whole story: every step with its groups and bytes per device, the peak memory, the lower bound and how close the
// plan is to it, and what else was tried and why it lost. Ends with a newline.
std::string ExplainPlan(const Plan& plan);

// How the domains of each level of the topology fall on the devices of a mesh, and which axes cross them, one line
// each: "domains of 8 (dgx-h100): 15 devices = 1 of 8 and 1 of 7; dp, tp cross them". Empty without domains.
std::string DescribeDomains(const Topology& topology, const Mesh& mesh);
// The same for a plan's topology and its meshes: the source mesh, then the target mesh if it differs.
std::string DescribeDomains(const Plan& plan);
// The name before 0.3.
[[deprecated("DescribeDomains")]] inline std::string DescribeIslands(const Topology& topology, const Mesh& mesh) {
  return DescribeDomains(topology, mesh);
}

// A picture of who holds what, as text for a terminal; with `device`, only of what that device id holds.
std::string DrawLayout(const Layout& layout, std::optional<int64_t> device = std::nullopt);
// The same as a standalone SVG document.
std::string LayoutToSvg(const Layout& layout, std::optional<int64_t> device = std::nullopt);
// A standalone SVG document with one panel per layout of the plan, from source to target, and the steps between them.
std::string PlanToSvg(const Plan& plan);

}  // namespace reshard

#endif  // RESHARD_PLANNER_REPORT_H_
