// The plan that is chosen for a network of nodes is the fastest of all candidates when every message is followed.
//
// The price that chooses looks at the messages and bytes of the busiest device of each step; the simulation lets
// messages meet in ports, and devices run ahead. Where plans are nearer to each other than that difference, another one
// can be faster: those cases are listed with what they cost.
#include <algorithm>

#include "reshard/planner/units.h"
#include "tests/catch.h"
#include "tests/planner/simulate/network_cases.h"

namespace reshard {
namespace {

using testing::Runner;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr double kTolerance = 1.05;

// Cases in which the chosen plan takes longer than kTolerance times the fastest candidate, and the most it may take.
struct Exception {
  int64_t nodes;
  int64_t mib;
  const char* name;
  double ratio;
};
const Exception kExceptions[] = {
    // The search looks for the fastest steps one after the other, and these are; in chunks others are.
    {16, 1024, "S0[tp] -> S0[dp]", 1.07},
    // Messages of one exchange that meet in a port; the price looks at bytes and messages of a device only.
    {128, 64, "S0[dp] -> S0[tp]", 1.43},
    // The halves of an AllReduce each pay their latencies. The price counts them once.
    {4, 1, "gradients of replicas", 1.07},
};

double Allowed(int64_t nodes, int64_t bytes, const std::string& name) {
  for (const Exception& e : kExceptions) {
    if (e.nodes == nodes && e.mib * kMiB == bytes && e.name == name) return e.ratio;
  }
  return kTolerance;
}

void HoldRaces(int64_t nodes, std::vector<int64_t> sizes) {
  const Topology topology = *Topology::Preset("dgx-h100");
  for (const int64_t bytes : sizes) {
    int contested = 0;
    for (const testing::NetworkCase& problem : testing::NetworkCases(nodes, bytes)) {
      const std::vector<Runner> runners = testing::Race(problem, topology);
      REQUIRE_FALSE(runners.empty());
      REQUIRE(runners.front().contender.label == "time");
      contested += runners.size() > 1;
      const auto best = std::min_element(runners.begin(), runners.end(), [](const Runner& a, const Runner& b) {
        return a.simulation.time_ns < b.simulation.time_ns;
      });
      const double ratio = static_cast<double>(runners.front().simulation.time_ns) /
                           static_cast<double>(std::max<int64_t>(1, best->simulation.time_ns));
      INFO(nodes << " nodes, " << HumanBytes(bytes) << ", " << problem.name << ": "
                 << testing::OpsText(runners.front().contender.plan) << " takes "
                 << HumanTime(runners.front().simulation.time_ns) << ", " << testing::OpsText(best->contender.plan)
                 << " " << HumanTime(best->simulation.time_ns));
      CHECK(ratio <= Allowed(nodes, bytes, problem.name));
      // What the price says crosses the busiest link is what the simulation sent through it.
      for (const Runner& runner : runners) {
        const Plan& plan = runner.contender.plan;
        if (runner.contender.label.find("flat") != std::string::npos) continue;
        REQUIRE(plan.totals.levels.size() == topology.levels.size());
        std::vector<int64_t> bytes_of_level(topology.levels.size(), 0);
        for (const Simulation::Link& link : runner.simulation.busiest) {
          auto& most = bytes_of_level[link.level];
          most = std::max(most, link.bytes);
        }
        for (size_t level = 0; level < topology.levels.size(); ++level) {
          INFO("level " << level << " of " << testing::OpsText(plan));
          CHECK(bytes_of_level[level] == plan.totals.levels[level].nic_bytes_max);
        }
      }
    }
    CHECK(contested > 5);
  }
}

TEST_CASE("on 2 nodes of dgx-h100 the chosen plan is the fastest in simulation", "[simulate]") {
  HoldRaces(2, {kMiB, 64 * kMiB, 1024 * kMiB});
}

TEST_CASE("on 4 nodes of dgx-h100 the chosen plan is the fastest in simulation", "[simulate]") {
  HoldRaces(4, {kMiB, 64 * kMiB, 1024 * kMiB});
}

// Ten minutes without optimization, more with a sanitizer, and nothing else than what is above.
#ifdef NDEBUG
TEST_CASE("on 16 nodes of dgx-h100 the chosen plan is the fastest in simulation", "[simulate]") {
  HoldRaces(16, {kMiB, 64 * kMiB, 1024 * kMiB});
}

TEST_CASE("on 128 nodes of dgx-h100 the chosen plan is the fastest in simulation", "[simulate]") {
  HoldRaces(128, {64 * kMiB, 1024 * kMiB});
}
#endif

}  // namespace
}  // namespace reshard
