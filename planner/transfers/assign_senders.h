// Chooses who sends what several devices hold, so that the busiest sender has as little to send as possible.
#ifndef RESHARD_PLANNER_TRANSFERS_ASSIGN_SENDERS_H_
#define RESHARD_PLANNER_TRANSFERS_ASSIGN_SENDERS_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"

namespace reshard::transfers {

// A few devices, mostly: those that hold one thing.
using SomeDevices = absl::InlinedVector<int32_t, 4>;

// Something to be sent. `candidates`: who can send it, in order of preference among equals; at least one.
struct Request {
  int64_t elements = 0;
  SomeDevices candidates;
};

// Returns one of its candidates for every request. With requests of one size, the load of the busiest sender is the
// smallest possible; with several sizes, it is what moving requests of equal size one after the other leads to.
// `loads`: the load of each sender before; the function adds that of the assignment.
//
// Example: three requests of one element for {0}, {0,1} and {0,1,2}, no loads before -> 0, 1, 2.
std::vector<int32_t> AssignSenders(const std::vector<Request>& requests, std::vector<int64_t>& loads);

}  // namespace reshard::transfers

#endif  // RESHARD_PLANNER_TRANSFERS_ASSIGN_SENDERS_H_
