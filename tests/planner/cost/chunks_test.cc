// Plans in chunks: what a chunk is, when plans are cut, and what they then take.
#include "reshard/planner/chunks.h"

#include <random>

#include "planner/cost/choose_chunks.h"
#include "reshard/layout/shard_map.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/report.h"
#include "reshard/planner/simulate.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/planner/simulate/follow_messages.h"

namespace reshard {
namespace {

using testing::LayoutOf;
using testing::ProblemOf;

// Ten bytes a nanosecond within pairs, one between them.
Topology Pairs(int64_t latency_ns) {
  return {"pairs", {{2, 10'000'000'000, latency_ns}, {0, 1'000'000'000, latency_ns}}};
}

PlanOptions On(Topology topology, bool overlap = true) {
  PlanOptions options;
  options.topology = std::move(topology);
  options.overlap = overlap;
  return options;
}

Plan PlanOf(const Problem& problem, const PlanOptions& options) {
  auto plan = MakePlan(problem, options);
  if (!plan.ok()) FAIL(plan.status());
  return *plan;
}

// Whether the device at `position` holds the index along the dimension.
bool Holds(const Layout& layout, int64_t position, int dim, int64_t index) {
  const auto intervals = layout.Intervals(position, dim);
  return std::any_of(intervals.begin(), intervals.end(),
                     [&](const Interval& interval) { return interval.begin <= index && index < interval.end; });
}

TEST_CASE("a device holds an equal part of its fragment in every chunk") {
  for (const char* text : {"[<x>24, 5]", "[24, <x>8]", "[<x,y>24, 5]", "[<2,x>24, <y>4]", "[<2,~x>24]", "[24]",
                           "[<x:(2)2>24, 5]", "[<y>24] sum<x>"}) {
    const Layout layout = LayoutOf(text, "{x:4,y:2}");
    for (int dim = 0; dim < layout.rank(); ++dim) {
      const int64_t largest = LargestBlock(layout, dim);
      for (int64_t block = 1; block <= largest; ++block) {
        for (int64_t count = 1; count <= block; ++count) {
          CAPTURE(text, dim, block, count);
          const Chunks chunks{count, dim, block};
          const auto one = OfChunk(layout, chunks);
          REQUIRE(one.ok() == (largest % block == 0 && block % count == 0));
          if (!one.ok()) continue;
          CHECK(one->partial() == layout.partial());
          for (int64_t p = 0; p < layout.mesh().size(); ++p) {
            // Index i of the dimension is in block i / block of the chunk that has its part of it.
            for (int64_t i = 0; i < layout.dim(dim).size; ++i) {
              REQUIRE(Holds(*one, p, dim, i / block) == Holds(layout, p, dim, i));
            }
            REQUIRE(one->LocalShape(p)[static_cast<size_t>(dim) + 1] == block / count);
          }
        }
      }
    }
  }
  CHECK(LargestBlock(LayoutOf("[<x>25]", "{x:4}"), 0) == 0);
  CHECK(LargestBlock(LayoutOf("[<x=[1,2]>3]", "{x:2}"), 0) == 0);
  CHECK(LargestBlock(LayoutOf("[0]", "{x:2}"), 0) == 0);
}

TEST_CASE("a plan in chunks takes the sum over turns") {
  // A quarter of 4000 bytes crosses from pair to pair, and each device gets the other half of what its pair has: 500 us
  // within pairs are hidden but for those of one chunk.
  const Problem problem = ProblemOf("{n:2,g:2}", "[<n,g>16000]", "[16000]", "", DType::kI8);
  PlanOptions options = On(Pairs(0));
  const Plan plan = PlanOf(problem, options);
  REQUIRE(plan.steps.size() == 2);
  CHECK(plan.steps[0].time_ns == 4000);  // the other pair's quarter at one byte a nanosecond
  CHECK(plan.steps[1].time_ns == 800);   // half of the tensor at ten
  const int64_t count = plan.chunks.count;
  REQUIRE(count > 1);
  CHECK(plan.totals.time_ns == 4000 + 800 / count);
  CHECK(plan.chunks == Chunks{50, 0, 4000});
  // Source 4000, target 16000, two chunks of the 8000 between, and a chunk of 12000 received and 12000 sent.
  CHECK(plan.totals.peak_bytes == 4000 + 16000 + 2 * 8000 / count + 2 * 12000 / count);
  CHECK(cost::TimeInChunks(plan.steps, options.topology, 1) == 4800);
  CHECK(cost::TimeInChunks(plan.steps, options.topology, 2) == 2000 + 2000 + 400);
  // With latencies of 100 a turn costs 200 more.
  CHECK(cost::TimeInChunks(plan.steps, Pairs(100), 2) == 2200 + 2200 + 600);
  const std::string text = ExplainPlan(plan);
  CHECK(text.find("in 50 chunks, each one step behind") != std::string::npos);
}

TEST_CASE("ReduceScatters go in chunks, and every turn is one exchange") {
  const Problem problem = ProblemOf("{n:2,g:2}", "[16000] sum<n,g>", "[<g,n>16000]", "", DType::kI8);
  const Plan plan = PlanOf(problem, On(Pairs(0)));
  REQUIRE(plan.steps.size() == 2);
  CHECK(plan.steps[0].time_ns == 800);   // half of the tensor within pairs at ten bytes a nanosecond
  CHECK(plan.steps[1].time_ns == 4000);  // a quarter between them at one
  const int64_t count = plan.chunks.count;
  REQUIRE(count > 1);
  CHECK(plan.totals.time_ns == 4000 + 800 / count);
  CHECK(plan.totals.peak_bytes == 16000 + 4000 + 2 * 8000 / count + 2 * 12000 / count);
  // Where all is needed everywhere, an AllReduce between the pairs loses to its halves in chunks.
  const Plan everywhere = PlanOf(ProblemOf("{n:2,g:2}", "[16000] sum<n,g>", "[16000]", "", DType::kI8), On(Pairs(0)));
  CHECK(everywhere.chunks.count > 1);
  CHECK(everywhere.steps.size() == 4);
  CHECK(everywhere.totals.time_ns < 8000 + 1000);
  // In one step nothing overlaps.
  const Problem across = ProblemOf("{n:2,g:2}", "[<g>16000] sum<n>", "[<g>16000]", "", DType::kI8);
  CHECK(PlanOf(across, On(Pairs(0))).chunks.count == 1);
}

TEST_CASE("plans are cut only where steps can be at work on different levels") {
  const Problem problem = ProblemOf("{n:2,g:2}", "[<n,g>16000]", "[16000]", "", DType::kI8);
  PlanOptions options = On(Pairs(0));
  const Plan whole = PlanOf(problem, On(Pairs(0), false));
  CHECK(whole.chunks.count == 1);
  CHECK(whole.totals.time_ns == 4800);
  PlanOptions fewest = options;
  fewest.objective = Objective::kSteps;
  CHECK(PlanOf(problem, fewest).chunks.count == 1);
  CHECK(PlanOf(problem, {}).chunks.count == 1);
  // Nothing is cut whose blocks are of one element, or that gains less than the turns cost.
  CHECK(PlanOf(ProblemOf("{n:2,g:2}", "[<n,g>4]", "[4]"), options).chunks.count == 1);
  CHECK(PlanOf(problem, On(Pairs(10'000))).chunks.count == 1);
  // A block of another dimension will do.
  const Plan rows = PlanOf(ProblemOf("{n:2,g:2}", "[<n,g>4, 4000]", "[4, 4000]", "", DType::kI8), options);
  CHECK(rows.chunks.dim == 1);
  CHECK(rows.chunks.block == 4000);
}

TEST_CASE("chunks keep to a memory limit that whole steps exceed") {
  const Problem problem = ProblemOf("{n:2,g:2}", "[<n,g>16000]", "[16000]", "", DType::kI8);
  PlanOptions options = On(Pairs(0));
  options.ops = options.ops.without(Op::kExchange);
  options.memory_limit_bytes = 21'000;
  const Plan plan = PlanOf(problem, options);
  CHECK(plan.chunks.count > 1);
  CHECK(plan.totals.peak_bytes <= 21'000);
  options.memory_limit_bytes = 19'999;  // less than source and target
  CHECK(absl::IsResourceExhausted(MakePlan(problem, options).status()));
}

TEST_CASE("plans with overlap are never slower, and are followed message by message") {
  std::mt19937 random(testing::Seed());
  const auto any = [&](auto n) { return static_cast<size_t>(random()) % static_cast<size_t>(n); };
  const std::vector<std::string> dims = {"*", "<n>", "<g>", "<n,g>", "<g,n>", "<2,n>", "<h>", "<h,n>", "<g,h>"};
  int moves = 0, reductions = 0;  // that are cut
  for (int trial = 0; trial < 300; ++trial) {
    const auto layout = [&](const std::string& partial) -> std::string {
      for (;;) {
        const std::string a = dims[any(dims.size())], b = dims[any(dims.size())];
        const std::string text = "[" + (a == "*" ? "" : a) + "64, " + (b == "*" ? "" : b) + "48]" + partial;
        if (ParseLayout(text, testing::MeshOf("{n:3,g:2,h:2}")).ok()) return text;
      }
    };
    const std::vector<std::string> partial = {"", "", " sum<n>", " max<g>", " sum<n,g>", " avg<n,g,h>"};
    const std::string from = layout(partial[any(partial.size())]), to = layout("");
    CAPTURE(from, to, testing::Seed());
    const Problem problem = ProblemOf("{n:2,g:2,h:2}", from, to);
    Topology topology{"three", {{2, 9'000'000'000, 2}, {4, 4'000'000'000, 5}, {0, 1'000'000'000, 9}}};
    if (any(2) == 0) topology = {"two", {{4, 7'000'000'000, 3}, {0, 1'000'000'000, 5, 2}}};
    const Plan plan = PlanOf(problem, On(topology));
    const Plan whole = PlanOf(problem, On(topology, false));
    CHECK(plan.totals.time_ns <= whole.totals.time_ns);
    if (plan.chunks.count == 1) continue;
    ++(problem.source.partial() ? reductions : moves);
    const auto simulated = Simulate(plan);
    REQUIRE(simulated.ok());
    CHECK(std::abs(static_cast<double>(simulated->time_ns) - testing::FollowMessages(plan, topology)) <
          2.0 * static_cast<double>(plan.chunks.Turns(std::ssize(plan.steps))) + 2);
    CHECK(simulated->steps.back().end_ns == simulated->time_ns);
  }
  CHECK(moves > 20);
  CHECK(reductions > 20);
}

}  // namespace
}  // namespace reshard
