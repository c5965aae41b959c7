// Redistributions that training and serving jobs do on nodes of eight devices, and the plans that compete for each.
#ifndef RESHARD_TESTS_PLANNER_SIMULATE_NETWORK_CASES_H_
#define RESHARD_TESTS_PLANNER_SIMULATE_NETWORK_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reshard/planner/plan.h"
#include "reshard/planner/simulate.h"

namespace reshard::testing {

struct NetworkCase {
  std::string name;
  Layout source;
  Layout target;
};

// On {dp:nodes,tp:8} (some on {dp:nodes/2,tp:16}, tp across two nodes); square tensors of about `bytes` in bf16.
std::vector<NetworkCase> NetworkCases(int64_t nodes, int64_t bytes);

// A plan with a word for where it comes from.
struct Contender {
  std::string label;
  Plan plan;
};

// The plan that MakePlan chooses on `topology` first, then every other one that the planner can be brought to make of
// the same problem, each once; all with `topology` as theirs.
std::vector<Contender> Contenders(const NetworkCase& problem, const Topology& topology);

struct Runner {
  Contender contender;
  Simulation simulation;
};
// All contenders on the same network, the chosen one first. Those that cannot be simulated are left out.
std::vector<Runner> Race(const NetworkCase& problem, const Topology& topology);

// "AllGather, Exchange"
std::string OpsText(const Plan& plan);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_PLANNER_SIMULATE_NETWORK_CASES_H_
