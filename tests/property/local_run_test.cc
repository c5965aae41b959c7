// Sampled plans executed on threads: every element checked by logical index, every byte counted.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "reshard/runtime/verify_run.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/property/problems.h"

namespace reshard::testing {
namespace {

constexpr DType kTypes[] = {DType::kI8,  DType::kBF16, DType::kF32, DType::kF16, DType::kU8,       DType::kBool,
                            DType::kI16, DType::kC64,  DType::kI64, DType::kF64, DType::kF8E4M3FN, DType::kC128};

Verdict Execute(RandomProblem problem, DType dtype, const Topology& topology) {
  problem.options.topology = topology;
  // By bytes the slow links decide, so that tensors this small go in phases too.
  if (topology.num_levels() > 1) problem.options.objective = Objective::kBytes;
  const auto from = ParseLayout(problem.from, problem.mesh);
  const auto to = ParseLayout(problem.to, problem.target_mesh);
  if (!from.ok() || !to.ok()) return {Outcome::kWrong, "a layout is refused"};
  const auto plan = MakePlan({*from, *to, dtype}, problem.options);
  if (!plan.ok()) return {Outcome::kRefused, plan.status().ToString()};
  RunOptions options;
  options.repeat = 0;
  options.timeout = absl::Minutes(1);
  const auto report = RunPlanLocally(*plan, options);
  if (!report.ok()) {
    // Reductions that a type does not have; everything else must run.
    const bool reduces = from->partial().has_value();
    const absl::StatusCode code = report.status().code();
    const bool refused = code == absl::StatusCode::kUnimplemented || code == absl::StatusCode::kInvalidArgument;
    return {reduces && refused ? Outcome::kRefused : Outcome::kWrong, report.status().ToString()};
  }
  if (!report->verified) return {Outcome::kWrong, report->first_mismatch};
  if (report->received_bytes_max != plan->totals.recv_bytes_max ||
      report->received_bytes_total != plan->totals.recv_bytes_total) {
    return {Outcome::kWrong,
            absl::StrCat("received ", report->received_bytes_max, " / ", report->received_bytes_total,
                         " bytes, planned ", plan->totals.recv_bytes_max, " / ", plan->totals.recv_bytes_total)};
  }
  return {};
}

void Sample(const Flavour& flavour, uint64_t stream, int count, int executed,
            const Topology& topology = Topology::Flat()) {
  int runs = 0;
  for (int i = 0; i < count; ++i) {
    const DType dtype = kTypes[static_cast<size_t>(i) % std::size(kTypes)];
    Choices choices(Seed() + stream * 1000003 + static_cast<uint64_t>(i));
    const Outcome outcome = Execute(MakeProblem(choices, flavour), dtype, topology).outcome;
    if (outcome == Outcome::kPlanned) ++runs;
    if (outcome != Outcome::kWrong) continue;
    const auto fails = [&](const std::vector<uint8_t>& bytes) {
      Choices again(bytes);
      return Execute(MakeProblem(again, flavour), dtype, topology).outcome == Outcome::kWrong;
    };
    Choices simplest(Shrink(choices.taken(), fails));
    const RandomProblem problem = MakeProblem(simplest, flavour);
    FAIL("seed " << Seed() << ", problem " << i << ", shrunk:\n"
                 << problem.Text() << " as " << Name(dtype) << "\n"
                 << Execute(problem, dtype, topology).text);
  }
  INFO(runs << " of " << count << " problems were executed");
  CHECK(runs >= executed);
}

}  // namespace

TEST_CASE("sampled plans move every element on threads") {
  Sample({.uneven = true, .sub_axes = true, .digits = true, .sizes = true}, 11, 1000, 1000);
  Sample({.uneven = true, .sub_axes = true, .digits = true, .sizes = true, .two_meshes = true}, 12, 1000, 1000);
  Sample({.uneven = true, .digits = true, .options = true}, 13, 500, 300);
  Sample({.uneven = true, .digits = true, .slots = true, .two_meshes = true}, 18, 1000, 1000);
  Sample({.uneven = true, .digits = true, .sizes = true, .two_meshes = true, .flattened = true}, 30, 2000, 2000);
}

TEST_CASE("sampled plans reduce every element on threads") {
  Sample({.uneven = true, .sub_axes = true, .digits = true, .sizes = true, .partial = true}, 14, 1000, 600);
}

TEST_CASE("sampled plans through domains move and reduce every element on threads") {
  const auto domains = [](const std::vector<int64_t>& sizes) {
    Topology out{"domains", {}};
    for (int64_t size : sizes) out.levels.push_back({size, 400'000'000'000, 1000, 0});
    out.levels.push_back({0, 25'000'000'000, 5000, 0});
    return out;
  };
  uint64_t stream = 20;
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{2}, {4}, {2, 4}, {3}}) {
    Sample({.uneven = true, .sub_axes = true, .digits = true}, ++stream, 300, 300, domains(sizes));
    Sample({.sub_axes = true, .partial = true}, ++stream, 300, 200, domains(sizes));
    Sample({.two_meshes = true}, ++stream, 100, 100, domains(sizes));
    Sample({.uneven = true, .slots = true}, ++stream, 300, 300, domains(sizes));
    Sample({.uneven = true, .flattened = true}, ++stream, 300, 300, domains(sizes));
  }
}

TEST_CASE("many sampled plans on threads", "[slow]") {
  Sample({.uneven = true, .sub_axes = true, .digits = true, .sizes = true}, 15, 15000, 15000);
  Sample({.uneven = true, .sub_axes = true, .digits = true, .sizes = true, .two_meshes = true}, 16, 15000, 15000);
  Sample({.uneven = true, .sub_axes = true, .digits = true, .sizes = true, .partial = true}, 17, 15000, 9000);
  Sample(Flavour::Everything(), 19, 10000, 5000);
}

}  // namespace reshard::testing
