#include "reshard/planner/calibrate.h"

#include <cmath>

#include "reshard/planner/planner.h"
#include "tests/catch.h"

namespace reshard {
namespace {

TEST_CASE("calibration finds the topology whose formula made the times") {
  for (const char* name : {"dgx-h100", "dgx-a100", "pcie", "cpu"}) {
    Topology expected = *Topology::Preset(name);
    const bool has_nodes = expected.num_levels() == 2;
    const CalibratedJob job{has_nodes ? 4 : 1, 8, int64_t{1} << 30};
    const auto probes = CalibrationProbes(job);
    REQUIRE(probes.ok());
    REQUIRE(probes->size() == (has_nodes ? 5 : 3));
    const double agreed = 5e-4;  // what each call costs beside its messages
    std::vector<double> seconds;
    for (const Probe& probe : *probes) {
      // Each probe but the first is one step over its own level.
      PlanOptions options;
      options.topology = expected;
      const auto plan = MakePlan(probe.problem, options);
      REQUIRE(plan.ok());
      CHECK(plan->totals.recv_bytes_max == probe.received);
      CHECK(plan->steps.size() == (probe.peers > 0 ? 1 : 0));
      const int64_t step =
          probe.peers == 0 ? 0 : expected.StepTime(probe.is_between ? 1 : 0, probe.peers, probe.received);
      seconds.push_back(agreed + static_cast<double>(step) / 1e9);
    }
    const auto found = FitTopology(job, seconds);
    REQUIRE(found.ok());
    const auto read = Topology::FromJson(TopologyToJson(*found), "measured");
    REQUIRE(read.ok());
    REQUIRE(read->num_levels() == expected.num_levels());
    for (size_t level = 0; level < expected.levels.size(); ++level) {
      const auto near = [](int64_t a, int64_t b) {
        return std::abs(static_cast<double>(a - b)) < 0.02 * static_cast<double>(b);
      };
      CHECK(read->levels[level].devices == expected.levels[level].devices);
      CHECK(near(read->levels[level].bytes_per_second, expected.levels[level].bytes_per_second));
      CHECK(near(read->levels[level].latency_ns, expected.levels[level].latency_ns));
    }
  }
}

TEST_CASE("calibration: one device a node has one level; what makes no sense is refused") {
  CHECK(CalibrationProbes({4, 1, 1 << 20})->size() == 3);
  CHECK((*CalibrationProbes({4, 1, 1 << 20}))[1].is_between);
  const auto flat = FitTopology({4, 1, 1 << 20}, {1e-5, 1e-4, 1e-2});
  REQUIRE(flat.ok());
  CHECK(flat->num_levels() == 1);
  for (const CalibratedJob& job : {CalibratedJob{1, 1, 1 << 20},
                                   {0, 8, 1 << 20},
                                   {int64_t{1} << 40, int64_t{1} << 40, 1 << 20},
                                   {1, 2, 5},
                                   {1, 2, int64_t{1} << 50}}) {
    CHECK(CalibrationProbes(job).status().code() == absl::StatusCode::kInvalidArgument);
  }
  for (const std::vector<double>& seconds :
       {std::vector<double>{}, {1.0, 1.0}, {1.0, 1.0, 0.0}, {NAN, 1.0, 1.0}, {1.0, 1.0, INFINITY}, {1, 1, 1, 1}}) {
    CHECK(FitTopology({1, 2, 1 << 20}, seconds).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace reshard
