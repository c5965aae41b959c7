// A second simulator for tests: every message by itself, in floating point, straight from the definition in
// reshard/planner/simulate.h. Slow.
#ifndef RESHARD_TESTS_PLANNER_SIMULATE_FOLLOW_MESSAGES_H_
#define RESHARD_TESTS_PLANNER_SIMULATE_FOLLOW_MESSAGES_H_

#include "reshard/planner/plan.h"

namespace reshard::testing {

// Nanoseconds of the whole plan. Without reductions over everything and without rounds.
double FollowMessages(const Plan& plan, const Topology& topology);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_PLANNER_SIMULATE_FOLLOW_MESSAGES_H_
