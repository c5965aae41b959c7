// Plans between two meshes: trainers and rollouts of other shapes, on other, the same or some of the same devices.
#include <memory>

#include "absl/strings/str_join.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/oracle/plan_check.h"
#include "tests/property/checked.h"
#include "tests/property/facts.h"

namespace reshard::testing {
namespace {

struct Case {
  const char* what;
  const char* mesh;
  const char* from;
  const char* target_mesh;
  const char* to;
  bool disjoint;
};

const std::vector<Case>& Cases() {
  static const auto* cases = new std::vector<Case>{
      {"stage 1 of TP2 PP4 DP2 to DP16", "{dp:2,tp:2}@4", "[<tp>64, 64]", "{dp:16}@32", "[64, 64]", true},
      {"experts of EP4 TP2 DP2 to TP4 DP4", "{ep:4,tp:2,dp:2}", "[<ep>16, <tp>32, 16]", "{tp:4,dp:4}@32",
       "[16, <tp>32, 16]", true},
      {"FSDP x TP to TP", "{fsdp:4,tp:2}", "[<fsdp>64, <tp>64]", "{tp:4}@8", "[64, <tp>64]", true},
      {"FSDP x TP to replicas of TP", "{fsdp:8,tp:2}", "[<fsdp,tp>64, 64]", "{replica:4,tp:4}@16", "[<tp>64, 64]",
       true},
      {"256 to 128 devices, half of them", "{dp:32,tp:8}", "[<dp>64, <tp>64]", "{dp:16,tp:8}", "[<dp>64, <tp>64]",
       false},
      {"256 to 128 other devices", "{dp:32,tp:8}", "[<dp,tp>256, 8]", "{dp:16,tp:8}@256", "[<dp,tp>256, 8]", true},
      {"overlapping halves", "{a:8}", "[<a>64, 64]", "{b:8}@4", "[64, <b>64]", false},
      {"heads 7 over 4 to 2", "{sp:4}", "[<sp>7, 64]", "{sp:2}@4", "[7, <sp>64]", true},
  };
  return *cases;
}

// The same layout of a tensor `factor` times as large along its last dimension.
Layout Larger(const Layout& layout, int64_t factor) {
  auto dims = layout.dims();
  dims.back().size *= factor;
  return *Layout::Create(layout.mesh(), std::move(dims));
}

}  // namespace

TEST_CASE("between meshes every element arrives, and no device receives more than it lacks") {
  for (const Case& c : Cases()) {
    const Layout from = LayoutOf(c.from, c.mesh), to = LayoutOf(c.to, c.target_mesh);
    for (const Objective objective : {Objective::kTime, Objective::kBytes}) {
      for (const char* network : {"flat", "dgx-h100"}) {
        INFO(c.what << ", by " << Name(objective) << ", " << network);
        PlanOptions options;
        options.objective = objective;
        options.topology = *Topology::Preset(network);
        const auto plan = MakePlan({from, to, DType::kBF16}, options);
        REQUIRE(plan.ok());
        const auto facts = FactsOf(*plan);
        REQUIRE(facts.ok());
        CHECK(absl::StrJoin(oracle::Check(*facts), "; ") == "");
        CHECK(Disagreement(*plan) == "");
        if (objective == Objective::kBytes && options.topology.num_levels() == 1) {
          CHECK(plan->totals.recv_bytes_max == plan->bounds.recv_bytes_max);
          CHECK(plan->totals.recv_bytes_total == plan->bounds.recv_bytes_total);
        }
      }
    }
  }
}

TEST_CASE("a large tensor crosses between meshes once, and its holders share the sending") {
  for (const Case& c : Cases()) {
    if (!c.disjoint) continue;
    INFO(c.what);
    const Layout from = Larger(LayoutOf(c.from, c.mesh), 1 << 14), to = Larger(LayoutOf(c.to, c.target_mesh), 1 << 14);
    const auto plan = MakePlan({from, to, DType::kBF16});
    REQUIRE(plan.ok());
    int64_t crossing = 0;
    for (const Step& step : plan->steps) {
      if (!step.crosses_meshes()) continue;
      crossing += step.recv_bytes_total;
      const auto transfers = TransferSchedule::Create(step, plan->options.topology);
      REQUIRE(transfers.ok());
      int64_t senders = 0, sent = 0, most = 0;
      for (const DeviceLoad& load : (*transfers)->Loads()) {
        senders += load.send > 0 ? 1 : 0;
        sent += load.send;
        most = std::max(most, load.send);
      }
      if (std::string(c.what).substr(0, 5) != "heads") CHECK(most * senders == sent);
    }
    CHECK(crossing == from.num_elements() * SizeOf(DType::kBF16));
    CHECK(plan->totals.recv_bytes_max == plan->bounds.recv_bytes_max);
  }
}

}  // namespace reshard::testing
