// What devices and domains lack where a slot table cuts a dimension: shards overlap there, so that needs and holdings
// are counted as sets of indices.
#ifndef RESHARD_PLANNER_COST_SLOT_BOUNDS_H_
#define RESHARD_PLANNER_COST_SLOT_BOUNDS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"

namespace reshard::cost {

// The dimension that a slot table cuts in either layout. Requires a pair that can be planned.
std::optional<int> SlotDimOf(const Layout& source, const Layout& target);

// In elements.
struct Lack {
  int64_t most = 0;   // of one domain
  int64_t total = 0;  // of all domains
  // Of each domain that lacks anything, by its number, ascending.
  std::vector<std::pair<int64_t, int64_t>> each;
};

// What the devices of a domain need under `target` and none of them holds under `source`. An element counts once,
// however many of them need it. `domain_of` gives the domain of a device id. Errors of ShardMap::Create and
// SlotAtoms::Create.
absl::StatusOr<Lack> LackWithSlots(const Layout& source, const Layout& target, int slot_dim,
                                   absl::FunctionRef<int64_t(int64_t device)> domain_of);

}  // namespace reshard::cost

#endif  // RESHARD_PLANNER_COST_SLOT_BOUNDS_H_
