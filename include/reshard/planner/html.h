// Plans and layouts as HTML pages to view in a browser: one file each, no network needed, dark and light.
//
// A page shows who holds what before and after every step, and for each device what it holds, sends and receives. It
// stays below 1 MB: if there are too many devices or messages, the page lists fewer of them and says so. Its time and
// size grow with the number of devices that it lists, not with the square of it.
#ifndef RESHARD_PLANNER_HTML_H_
#define RESHARD_PLANNER_HTML_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/planner/batch.h"
#include "reshard/planner/plan.h"

namespace reshard {

// The page of a plan. The alternatives that lost can be opened step by step in its place, as long as there is room for
// them.
absl::StatusOr<std::string> PlanToHtml(const Plan& plan);

// The page of one layout; with `device`, that device is selected when the page opens.
std::string LayoutToHtml(const Layout& layout, std::optional<int64_t> device = std::nullopt);

// One tensor on a page of many.
struct PageTensor {
  std::string name;            // what the page calls it; any text
  std::optional<size_t> plan;  // index into the plans; absent: it has none
  std::string error;           // why it has no plan
};
// The page of many tensors: a table in which each opens its plan. Tensors may share plans. InvalidArgument: an index
// out of range.
absl::StatusOr<std::string> PlansToHtml(absl::Span<const Plan> plans, absl::Span<const PageTensor> tensors);

// The page of a batch that was planned as one schedule: the same table, and the totals of the schedule. `names`, if not
// empty, replace batch.names on the page. InvalidArgument for a different number of them.
absl::StatusOr<std::string> BatchToHtml(const BatchPlan& batch, absl::Span<const std::string> names = {});

}  // namespace reshard

#endif  // RESHARD_PLANNER_HTML_H_
