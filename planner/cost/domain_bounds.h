// What locality domains must receive and send, whatever the cuts of the layouts.
#ifndef RESHARD_PLANNER_COST_DOMAIN_BOUNDS_H_
#define RESHARD_PLANNER_COST_DOMAIN_BOUNDS_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"
#include "reshard/planner/topology.h"

namespace reshard::cost {

// In bytes.
struct DomainBounds {
  int64_t recv_most = 0;   // that one domain needs and none of its devices holds
  int64_t recv_total = 0;  // of all domains
  // Domains that hold the same form a group. What only a group holds and another domain needs has to leave the group
  // once, whatever is passed on afterwards: the most of any group, and the domains that can share the sending.
  int64_t sent_most = 0;
  int64_t senders = 1;
};

// Example, of bytes: [<a>10] -> [10] on {a:4}, each device a domain: a holds 3, 3, 3, 1. A domain receives up to 9, the
// first sends 3; of [<a>10] -> [10] on {a:4,b:2}, two domains share the 3.
//
// nullopt where the meshes differ, something is partial or cut by a slot table, the domains of `level` are not
// sub-meshes, or the border of the domains is not between two digits of a cut.
absl::StatusOr<std::optional<DomainBounds>> BoundsOfDomains(const Layout& source, const Layout& target, DType dtype,
                                                            const Topology& topology, int level);

}  // namespace reshard::cost

#endif  // RESHARD_PLANNER_COST_DOMAIN_BOUNDS_H_
