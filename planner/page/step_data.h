// The steps of a plan as the data of a page: what each listed device does in them.
#ifndef RESHARD_PLANNER_PAGE_STEP_DATA_H_
#define RESHARD_PLANNER_PAGE_STEP_DATA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/page/detail.h"
#include "reshard/planner/plan.h"

namespace reshard::page {

// Members of a JSON object, without its braces:
//   "loads": {"values": [[before, after, received, sent, and per level received, sent]...], "of": RUNS}   in bytes
//   "peers": {"values": [[[first, stride, count, bytes]...]...], "receives": RUNS, "sends": RUNS}   if not too many
//   "boxes": [[sender, receiver, number of boxes, offset, size, offset, size...]...]                if few
//   "messages": how many there are
// RUNS gives every listed device the index of its value: [value, devices, value, devices...]. Peers are relative to the
// device's own id: devices that do the same relative to where they are, as those of a collective mostly do, share one
// value. Of a message of several boxes, the first is given.
absl::StatusOr<std::string> StepData(const Step& step, const Plan& plan, const std::vector<int64_t>& devices,
                                     const Detail& detail);

}  // namespace reshard::page

#endif  // RESHARD_PLANNER_PAGE_STEP_DATA_H_
