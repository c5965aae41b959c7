// Times of small plans, worked out by hand, and of random ones against a simulator that follows every message.
#include "reshard/planner/simulate.h"

#include <cmath>
#include <memory>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/planner/simulate/follow_messages.h"

namespace reshard {
namespace {

using testing::MeshOf;

// One byte a nanosecond, 100 ns.
Topology OneLevel() { return {"test", {{0, 1'000'000'000, 100}}}; }

Plan PlanOf(std::string_view mesh_text, const std::vector<std::string>& layouts, Topology topology,
            Op op = Op::kExchange) {
  const auto mesh = MeshOf(mesh_text);
  Plan plan;
  plan.dtype = DType::kI8;
  plan.options.topology = std::move(topology);
  for (size_t i = 0; i + 1 < layouts.size(); ++i) {
    Step step;
    step.op = op;
    step.from = *ParseLayout(layouts[i], mesh);
    step.to = *ParseLayout(layouts[i + 1], mesh);
    plan.steps.push_back(step);
  }
  plan.source = plan.steps.front().from;
  plan.target = plan.steps.back().to;
  return plan;
}

Simulation Run(const Plan& plan) {
  auto simulation = Simulate(plan);
  if (!simulation.ok()) FAIL(simulation.status());
  return *simulation;
}

TEST_CASE("one message: launch, its own latency, its bytes", "[simulate]") {
  const Simulation s = Run(PlanOf("{a:2}", {"[<a=[8,0]>8]", "[<a=[0,8]>8]"}, OneLevel()));
  CHECK(s.time_ns == 208);
  CHECK(s.messages == 1);
  REQUIRE(s.busiest.size() == 2);
  CHECK(s.busiest[0].device == 1);
  CHECK_FALSE(s.busiest[0].out);
  CHECK(s.busiest[0].bytes == 8);
  CHECK(s.busiest[0].busy_ns == 8);
  CHECK(s.busiest[0].used_permille == 8 * 1000 / 208);
  CHECK(s.busiest[1].device == 0);
  CHECK(s.busiest[1].out);
}

TEST_CASE("messages into one device share its port", "[simulate]") {
  CHECK(Run(PlanOf("{a:3}", {"[<a=[0,1000,1000]>2000]", "[<a=[2000,0,0]>2000]"}, OneLevel())).time_ns == 2200);
}

TEST_CASE("what one port cannot use flows through another", "[simulate]") {
  // 1 -> 0 and 2 -> 3 from 200 on; 2 -> 0 from 300 on: three flows at a half each until 1 -> 0 ends at 2100, then 2 ->
  // 0 still at a half until 2300, then 2 -> 3 alone.
  const Simulation s = Run(PlanOf("{a:4}", {"[<a=[0,1000,4000,0]>5000]", "[<a=[2000,0,0,3000]>5000]"}, OneLevel()));
  CHECK(s.time_ns == 4200);
  CHECK(s.message_classes == 3);
  // The other way around: a slow receiver leaves its senders room. 1 and 2 send 900 each to 0 at a half; 2 also 900
  // to 3.
  const Simulation fair = Run(PlanOf("{a:4}", {"[<a=[0,900,1800,0]>2700]", "[<a=[1800,0,0,900]>2700]"}, OneLevel()));
  // 2 -> 3 from 200, alone until 300 (800 left), then halves: 1 -> 0 has 800 left at 300 and ends at 1900 with 2 -> 3;
  // 2 -> 0 has 100 left and ends at 2000.
  CHECK(fair.time_ns == 2000);
}

TEST_CASE("devices that share a link get a part of it each", "[simulate]") {
  Topology own{"own", {{2, 10'000'000'000, 10}, {0, 1'000'000'000, 100}}};
  Topology shared = own;
  shared.levels[1].nics = 1;
  // Devices 0 and 1 give 1000 bytes each to 2 and 3.
  const std::vector<std::string> across = {"[<a=[1000,1000,0,0]>2000]", "[<a=[0,0,1000,1000]>2000]"};
  const Simulation s = Run(PlanOf("{a:4}", across, own));
  const Simulation t = Run(PlanOf("{a:4}", across, shared));
  CHECK(s.time_ns == 1200);
  CHECK(t.time_ns == 2200);
  REQUIRE_FALSE(t.busiest.empty());
  CHECK(t.busiest.back().level == 1);
  CHECK(t.busiest.back().bytes == 2000);
  CHECK(t.busiest.back().device == 0);
}

TEST_CASE("a device begins a step when it has ended the one before, whatever others do", "[simulate]") {
  // 0 gives 1 1000 bytes, then 4000; 2 gives 3 5000 bytes and gets 1000 back.
  const Plan plan =
      PlanOf("{a:4}", {"[<a=[5000,0,5000,0]>10000]", "[<a=[4000,1000,0,5000]>10000]", "[<a=[0,5000,1000,4000]>10000]"},
             OneLevel());
  const Simulation s = Run(plan);
  CHECK(s.time_ns == 5200 + 1200);
  REQUIRE(s.steps.size() == 2);
  CHECK(s.steps[0].begin_ns == 0);
  CHECK(s.steps[0].end_ns == 5200);
  CHECK(s.steps[1].begin_ns == 1200);
  CHECK(s.steps[1].end_ns == 6400);
}

TEST_CASE("a receiver that is late holds its sender up", "[simulate]") {
  // Step 1: 0 -> 1, 1000 bytes. Step 2: 1 gets 500 bytes from 2, which waits for it.
  const Plan plan =
      PlanOf("{a:3}", {"[<a=[1000,0,500]>1500]", "[<a=[0,1000,500]>1500]", "[<a=[0,1500,0]>1500]"}, OneLevel());
  // 2 would be ready at 200; 1 enters its second step at 1200.
  CHECK(Run(plan).time_ns == 1200 + 500);
}

TEST_CASE("tiny messages cost their latencies, one after another", "[simulate]") {
  Topology fast = OneLevel();
  fast.levels[0].bytes_per_second = 1'000'000'000'000;
  const Simulation s = Run(PlanOf("{a:4}", {"[<a>4, 4]", "[4, <a>4]"}, fast));
  CHECK(s.time_ns == 100 * (1 + 3) + 1);
  CHECK(s.messages == 12);
  CHECK(s.message_classes == 3);
}

TEST_CASE("levels are posted side by side", "[simulate]") {
  Topology two{"two", {{4, 1'000'000'000, 10}, {0, 1'000'000'000, 1000}}};
  // 3 messages in the node, 4 across: 1000 * (1 + 4), then the last byte.
  CHECK(Run(PlanOf("{n:2,g:4}", {"[<n,g>8, 8]", "[8, <n,g>8]"}, two)).time_ns == 5001);
}

TEST_CASE("large messages of a regular exchange fill the ports", "[simulate]") {
  const Simulation s = Run(PlanOf("{a:8}", {"[<a>8192, 64]", "[8192, <a>64]"}, OneLevel()));
  CHECK(s.time_ns >= 200 + 7 * 8192);
  CHECK(s.time_ns <= 200 + 7 * 8192 + 7);  // a nanosecond an event at most
  CHECK(s.message_classes == 7);
}

TEST_CASE("an AllReduce scatters and gathers", "[simulate]") {
  const Simulation s = Run(PlanOf("{a:4}", {"[400] sum<a>", "[400]"}, OneLevel(), Op::kAllReduce));
  CHECK(s.time_ns == 2 * (200 + 300));
  CHECK(s.messages == 24);
  // Chunks of 134, 134 and 132.
  const Simulation uneven = Run(PlanOf("{a:3}", {"[400] sum<a>", "[400]"}, OneLevel(), Op::kAllReduce));
  CHECK(uneven.time_ns >= 2 * (200 + 2 * 133));
  CHECK(Run(PlanOf("{a:4}", {"[400] sum<a>", "[<a>400]"}, OneLevel(), Op::kReduceScatter)).time_ns == 500);
}

TEST_CASE("rounds pay the latency each", "[simulate]") {
  Plan plan = PlanOf("{a:2}", {"[<a=[1000,0]>1000]", "[<a=[0,1000]>1000]"}, OneLevel());
  plan.steps[0].rounds = 3;
  CHECK(Run(plan).time_ns == 3 * 200 + 1000);
}

TEST_CASE("a plan without messages takes no time", "[simulate]") {
  const Plan plan = PlanOf("{a:2}", {"[8]", "[<a>8]"}, OneLevel(), Op::kSlice);
  const Simulation s = Run(plan);
  CHECK(s.time_ns == 0);
  CHECK(s.busiest.empty());
  REQUIRE(s.steps.size() == 1);
}

TEST_CASE("every topology with a name makes sense", "[simulate]") {
  for (const char* name : {"flat", "dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "gb200", "mi300x", "pcie", "cpu"}) {
    INFO(name);
    const auto topology = Topology::Preset(name);
    REQUIRE(topology.ok());
    CHECK(topology->name == name);
    CHECK(topology->Validate().ok());
    // Nearer is faster.
    for (size_t i = 1; i < topology->levels.size(); ++i) {
      CHECK(topology->levels[i].bytes_per_second < topology->levels[i - 1].bytes_per_second);
      CHECK(topology->levels[i].latency_ns > topology->levels[i - 1].latency_ns);
    }
    CHECK(absl::StrContains(Topology::Preset("nonsense").status().message(), name));
  }
}

TEST_CASE("bad topologies and endless plans are refused", "[simulate]") {
  Plan plan = PlanOf("{a:2}", {"[<a=[8,0]>8]", "[<a=[0,8]>8]"}, OneLevel());
  SimulateOptions options;
  options.topology = Topology{"none", {}};
  CHECK(absl::IsInvalidArgument(Simulate(plan, options).status()));
  options.topology = Topology{"still", {{0, 0, 1}}};
  CHECK(absl::IsInvalidArgument(Simulate(plan, options).status()));
  options.topology = Topology{"slow", {{0, 1000, 1'000'000'000'000}}};
  CHECK(Simulate(plan, options)->time_ns == 2'000'000'000'000 + 8'000'000);
  plan.steps[0].rounds = int64_t{1} << 40;
  CHECK(absl::IsResourceExhausted(Simulate(plan).status()));
}

TEST_CASE("a simulation in words", "[simulate]") {
  const Plan plan = PlanOf("{a:2}", {"[<a=[8,0]>8]", "[<a=[0,8]>8]"}, OneLevel());
  CHECK(SimulationToText(plan, Run(plan)) ==
        "simulated 208 ns (priced 0 ns), 1 messages\n"
        "  step 1 Exchange: 208 ns\n"
        "  level 0, busiest link into device 1: 8 B, 3 % used\n"
        "  level 0, busiest link out of device 0: 8 B, 3 % used\n");
}

TEST_CASE("random plans take as long as when every message is followed by itself", "[simulate]") {
  std::mt19937_64 random(testing::Seed());
  const std::vector<std::string> meshes = {"{a:2,b:4}", "{a:3,b:2}@1", "{a:2,b:2,c:2}", "{a:4,b:4}", "{a:8}"};
  const std::vector<Topology> topologies = {
      OneLevel(),
      {"two", {{4, 3'000'000'000, 30}, {0, 1'000'000'000, 110}}},
      {"nics", {{4, 3'000'000'000, 30}, {0, 1'000'000'000, 110, 2}}},
      {"three", {{2, 7'000'000'000, 10}, {4, 3'000'000'000, 30, 1}, {0, 1'000'000'000, 110, 2}}},
  };
  int compared = 0, collapsed = 0;
  for (int i = 0; i < 400; ++i) {
    const auto mesh = MeshOf(meshes[random() % meshes.size()]);
    const int64_t size = random() % 2 == 0 ? 240 : 97;
    Plan plan;
    plan.dtype = DType::kI8;
    plan.options.topology = topologies[random() % topologies.size()];
    std::vector<Layout> layouts;
    for (size_t l = 0; l < 2 + random() % 3; ++l) {
      std::vector<DimLayout> dims = {{size, {}}, {48, {}}};
      for (int axis = 0; axis < mesh.num_axes(); ++axis) {
        const size_t d = random() % 3;
        if (d == 2) continue;
        Factor factor;
        factor.axis = {axis, 1, mesh.axis(axis).size};
        auto& factors = dims[d].factors;
        factors.insert(factors.begin() + static_cast<ptrdiff_t>(random() % (factors.size() + 1)), factor);
      }
      layouts.push_back(*Layout::Create(mesh, dims));
    }
    for (size_t l = 0; l + 1 < layouts.size(); ++l) {
      Step step;
      step.from = layouts[l];
      step.to = layouts[l + 1];
      plan.steps.push_back(step);
    }
    plan.source = layouts.front();
    plan.target = layouts.back();
    const Simulation s = Run(plan);
    const double followed = testing::FollowMessages(plan, plan.options.topology);
    INFO(ToString(mesh) << " " << plan.options.topology.name << " " << [&] {
      std::string text;
      for (const Layout& l : layouts) text += ToString(l) + " ";
      return text;
    }());
    // Every message may end a nanosecond late, and holds up what comes after it.
    const double slack = 2.0 + 0.002 * followed;
    CHECK(std::abs(static_cast<double>(s.time_ns) - followed) <= slack);
    compared += s.messages > 0;
    collapsed += s.message_classes < s.messages;
  }
  CHECK(compared > 300);
  CHECK(collapsed > 150);
}

}  // namespace
}  // namespace reshard
