// What no plan can beat, from the two ends alone.
#ifndef RESHARD_CHECK_BOUNDS_H_
#define RESHARD_CHECK_BOUNDS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "check/meet.h"
#include "check/plan_text/topology.h"
#include "reshard/check/check.h"

namespace reshard::check {

// In bytes.
struct BoundFacts {
  int64_t recv_max = 0;
  int64_t recv_total = 0;
  int64_t local_max = 0;
  bool reduces = false;  // values that are partial in the source are complete in the target
};
// Nothing when something is partial in the target but not in the source: no plan leads there.
std::optional<BoundFacts> Bounds(const Holdings& source, const Holdings& target, const std::vector<Contents>& contents,
                                 const Devices& devices, int64_t element_bytes);

// In bytes.
struct CutFacts {
  int64_t domain_max = 0;
  // The share of one link: as if every domain had as many links as the best connected one, and with only the links of
  // the devices that take part.
  Derived link_max;
  // Likewise what the busiest link receives or sends. What only some domains hold, and another one needs, has to be
  // sent by one of them. Sending is counted where source and target have one mesh and no slot table.
  Derived busiest_link;
  int64_t total = 0;
};
// What domains of the level inside `level` (devices, for the innermost) need and none of their devices holds, without
// reductions. Nothing where finding out takes too long.
std::optional<CutFacts> Cut(int level, const Holdings& source, const Holdings& target,
                            const std::vector<Contents>& contents, const Devices& devices,
                            const plan_text::Links& links, int64_t element_bytes);

}  // namespace reshard::check

#endif  // RESHARD_CHECK_BOUNDS_H_
