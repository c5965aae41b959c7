// Which of a layout's cuts lie between the domains of a topology, and the axes that are left inside them.
#ifndef RESHARD_PLANNER_CANDIDATES_DOMAIN_CUTS_H_
#define RESHARD_PLANNER_CANDIDATES_DOMAIN_CUTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "reshard/layout/layout.h"

namespace reshard::candidates {

using Cuts = std::vector<std::vector<Factor>>;  // one list per dimension

// The cuts of a layout between domains: axes inside the domains become blocks, which keep every part. `outer`:
// digits::OuterSizes of its mesh. nullopt where a factor cannot be taken apart.
std::optional<Cuts> BetweenDomains(const Layout& layout, const std::vector<int64_t>& outer);

// The parts of axes inside the domains, in mesh order.
std::vector<AxisRef> InsideDomains(const Mesh& mesh, const std::vector<int64_t>& outer);

}  // namespace reshard::candidates

#endif  // RESHARD_PLANNER_CANDIDATES_DOMAIN_CUTS_H_
