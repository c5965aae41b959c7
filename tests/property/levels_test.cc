// TransferSchedule on a topology with levels, counted again message by message.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/traffic.h"
#include "tests/layouts.h"
#include "tests/property.h"
#include "tests/property/checked.h"
#include "tests/property/problems.h"
#include "tests/topologies.h"

namespace reshard::testing {
namespace {

// Loads from messages; reductions, whose messages mean something else, only by their sums.
std::string Compare(const TransferSchedule& transfers, const Topology& topology, bool moves) {
  const std::vector<int64_t> devices = transfers.Devices();
  const auto levels = static_cast<size_t>(topology.num_levels());
  for (size_t i = 0; i < devices.size(); ++i) {
    const DeviceLoad load = transfers.Load(static_cast<int64_t>(i));
    const std::string where = "device " + std::to_string(devices[i]) + ": ";
    LevelLoad sum;
    if (load.levels.size() != levels) return where + "no levels";
    for (const LevelLoad& level : load.levels) {
      sum.recv += level.recv;
      sum.send += level.send;
    }
    if (sum.recv != load.recv || sum.send != load.send) return where + "levels do not add up";
    if (!moves) continue;
    std::vector<LevelLoad> seen(levels);
    std::vector<int64_t> senders(levels, 0), receivers(levels, 0);
    for (const Message& message : transfers.Receives(devices[i])) {
      if (message.sender == message.receiver) continue;
      const auto level = static_cast<size_t>(topology.LevelOf(message.sender, message.receiver));
      seen[level].recv += message.elements();
      ++senders[level];
    }
    for (const Message& message : transfers.Sends(devices[i])) {
      if (message.sender == message.receiver) continue;
      const auto level = static_cast<size_t>(topology.LevelOf(message.sender, message.receiver));
      seen[level].send += message.elements();
      ++receivers[level];
    }
    for (size_t level = 0; level < levels; ++level) {
      if (seen[level].recv != load.levels[level].recv) return where + "received";
      if (seen[level].send != load.levels[level].send) return where + "sent";
      if (std::max(senders[level], receivers[level]) != load.levels[level].peers) return where + "peers";
    }
  }
  return "";
}

}  // namespace

TEST_CASE("what crosses a level is what its messages say") {
  const std::vector<std::vector<int64_t>> topologies = {{2}, {4}, {3}, {8}, {2, 4}, {2, 8}, {4, 16}};
  int compared = 0;
  const uint64_t seed = Seed();
  INFO("seed " << seed);
  for (int round = 0; round < 4000; ++round) {
    Choices choices(seed + static_cast<uint64_t>(round));
    Flavour flavour = Flavour::Everything();
    flavour.options = false;
    flavour.two_meshes = round % 4 == 0;
    flavour.large = round % 8 == 0;
    const RandomProblem problem = MakeProblem(choices, flavour);
    const Topology topology = OfDomains(topologies[static_cast<size_t>(round) % topologies.size()]);
    const Layout from = LayoutOf(problem.from, problem.mesh), to = LayoutOf(problem.to, problem.target_mesh);
    PlanOptions options;
    options.topology = topology;
    const auto plan = MakePlan({from, to, problem.dtype}, options);
    if (!plan.ok()) continue;
    INFO(problem.Text() << " domains of " << topology.levels[0].devices);
    CHECK(Disagreement(*plan) == "");
    for (const Step& step : plan->steps) {
      const auto transfers = TransferSchedule::Create(step, topology);
      REQUIRE(transfers.ok());
      INFO(problem.Text() << " domains of " << topology.levels[0].devices << ", step " << Name(step.op) << " "
                          << ToString(step.from) << " -> " << ToString(step.to));
      const bool moves = step.op != Op::kReduceScatter && step.op != Op::kAllReduce;
      CHECK(Compare(**transfers, topology, moves) == "");
      ++compared;
    }
  }
  CHECK(compared > 2000);
}

TEST_CASE("one device of a class stands for all, on a topology with levels too") {
  struct Case {
    const char *mesh, *from, *to;
  };
  for (const Case& c : std::vector<Case>{
           {"{n:4,g:4}", "[<n>64, 64]", "[<g>64, 64]"},
           {"{n:4,g:4}", "[<n,g>64, 64]", "[<g,n>64, 64]"},
           {"{n:4,g:4}", "[<g>64, <n>64]", "[<n>64, <g>64]"},
           {"{n:2,g:8}", "[<g>64, <n>64]", "[64, <n,g>64]"},
           {"{a:2,b:4,c:2}", "[<a,c>64, <b>64]", "[<c>64, <a,b>64]"},
           {"{dp:8,tp:4}", "[<dp>64, 64]", "[<tp>64, <dp>64]"},
           {"{dp:8,tp:4}", "[<dp,tp>64, 64]", "[64, 64]"},
           {"{dp:2,tp:8}", "[64, 64] sum<dp>", "[<tp>64, 64] sum<dp>"},
       }) {
    for (const std::vector<int64_t>& domains : std::vector<std::vector<int64_t>>{{4}, {8}, {2, 8}}) {
      const Topology topology = OfDomains(domains);
      const auto transfers =
          TransferSchedule::Create(Op::kExchange, LayoutOf(c.from, c.mesh), LayoutOf(c.to, c.mesh), topology);
      REQUIRE(transfers.ok());
      INFO(c.mesh << " " << c.from << " -> " << c.to << ", domains of " << domains[0]);
      CHECK((*transfers)->Links() != nullptr);
      CHECK(Compare(**transfers, topology, true) == "");
      int64_t total = 0, largest = 0;
      for (const DeviceLoad& load : (*transfers)->Loads()) {
        total += load.recv;
        largest = std::max(largest, load.send);
      }
      CHECK((*transfers)->Figures().recv_total == total);
      CHECK((*transfers)->Figures().send_max == largest);
    }
  }
}

}  // namespace reshard::testing
