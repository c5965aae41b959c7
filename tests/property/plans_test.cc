// Properties of layouts and plans, searched and shrunk by RapidCheck. A problem is made from a list of bytes (see
// problems.h), so that shrinking the bytes shrinks the problem.
#include <algorithm>
#include <tuple>

#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/report.h"
#include "tests/layouts.h"
#include "tests/oracle/holdings.h"
#include "tests/property/ends.h"
#include "tests/property/search_bytes.h"

namespace reshard::testing {

TEST_CASE("text round-trips") {
  SearchBytes("a layout and its mesh print what they were read from", 1000, [](const std::vector<uint8_t>& bytes) {
    const RandomProblem problem = ProblemFrom(bytes, Flavour::Everything());
    for (const auto& [mesh, text] : {std::tie(problem.mesh, problem.from), std::tie(problem.target_mesh, problem.to)}) {
      const auto layout = ParseLayout(text, mesh);
      RC_ASSERT(layout.ok());
      const std::string printed = ToString(*layout);
      const auto again = ParseLayout(printed, ToString(layout->mesh()));
      RC_ASSERT(again.ok());
      RC_ASSERT(*again == *layout);
      RC_ASSERT(ToString(*again) == printed);
    }
  });
}

TEST_CASE("the library and the oracle read layouts alike") {
  SearchBytes("every device holds the same spans, and equivalence is the same", 1000,
              [](const std::vector<uint8_t>& bytes) {
                const RandomProblem problem = ProblemFrom(bytes, kTwoMeshes);
                const Ends ends = EndsOf(problem);
                const oracle::Layout from = oracle::ParseLayout(problem.from, oracle::ParseMesh(problem.mesh));
                const oracle::Layout to = oracle::ParseLayout(problem.to, oracle::ParseMesh(problem.target_mesh));
                for (int64_t p = 0; p < from.mesh.size(); ++p) {
                  for (int d = 0; d < ends.from.rank(); ++d) {
                    const auto mine = ends.from.Intervals(p, d);
                    const auto theirs = oracle::Spans(from, static_cast<size_t>(d), p);
                    RC_ASSERT(std::equal(
                        mine.begin(), mine.end(), theirs.begin(), theirs.end(),
                        [](const Interval& a, const oracle::Span& b) { return a.begin == b.begin && a.end == b.end; }));
                  }
                }
                const auto equivalent = Equivalent(ends.from, ends.to);
                RC_ASSERT(equivalent.ok());
                RC_ASSERT(*equivalent == oracle::Equivalent(from, to));
              });
}

TEST_CASE("plans are legal and keep to the bounds") {
  SearchBytes("the oracle finds nothing wrong", 1000, [](const std::vector<uint8_t>& bytes) {
    const Verdict verdict = Judge(ProblemFrom(bytes, Flavour::Everything()));
    RC_LOG() << verdict.text << "\n";
    RC_ASSERT(verdict.outcome != Outcome::kWrong);
  });
}

TEST_CASE("lower bounds obey the triangle inequality") {
  SearchBytes("from here to there is no more than over a third layout", 1000, [](const std::vector<uint8_t>& bytes) {
    // The same shape and mesh, which the first choices decide, and other choices behind.
    const RandomProblem problem = ProblemFrom(bytes, {});
    std::vector<uint8_t> other = bytes;
    std::reverse(other.begin() + std::min<std::ptrdiff_t>(5, std::ssize(other)), other.end());
    const RandomProblem via = ProblemFrom(other, {});
    RC_PRE(via.mesh == problem.mesh);
    const Ends ends = EndsOf(problem);
    const auto middle = ParseLayout(via.to, via.mesh);
    RC_ASSERT(middle.ok());
    RC_PRE(middle->shape() == ends.from.shape());
    const auto bound = [](const Layout& a, const Layout& b) {
      return MakePlan({a, b, DType::kI8})->bounds.recv_bytes_max;
    };
    RC_ASSERT(bound(ends.from, ends.to) <= bound(ends.from, *middle) + bound(*middle, ends.to));
  });
}

// Within one process. Across processes, machines and compilers: tests/golden/many_plans_test.py.
TEST_CASE("planning is deterministic") {
  SearchBytes("the same problem gives the same bytes of JSON", 1000, [](const std::vector<uint8_t>& bytes) {
    const RandomProblem problem = ProblemFrom(bytes, Flavour::Everything());
    const auto json = [&] {
      const Ends ends = EndsOf(problem);
      const auto plan = MakePlan({ends.from, ends.to, problem.dtype}, problem.options);
      return plan.ok() ? *PlanToJson(*plan, true) : plan.status().ToString();
    };
    RC_ASSERT(json() == json());
  });
}

// By time, between meshes, a plan may take an eighth longer than the fastest where fewer bytes cross.
int64_t Allowed(const Plan& other) {
  const bool slack = other.options.objective == Objective::kTime && !(other.source.mesh() == other.target.mesh());
  return Value(other) + (slack ? Value(other) / 8 : 0);
}

TEST_CASE("more freedom is never worse") {
  SearchBytes("all ops against some of them", 1000, [](const std::vector<uint8_t>& bytes) {
    const RandomProblem problem = ProblemFrom(bytes, Flavour::Everything());
    const Ends ends = EndsOf(problem);
    PlanOptions restricted = problem.options;
    if (problem.limit_memory) restricted.boxes_only = true;
    PlanOptions free = restricted;
    free.ops = OpSet::All();
    free.boxes_only = false;
    const auto some = MakePlan({ends.from, ends.to, problem.dtype}, restricted);
    const auto all = MakePlan({ends.from, ends.to, problem.dtype}, free);
    RC_PRE(some.ok());
    RC_ASSERT(all.ok());
    RC_ASSERT(Value(*all) <= Allowed(*some));
    for (const Objective objective : {Objective::kTime, Objective::kBytes, Objective::kSteps}) {
      free.objective = objective;
      const auto best = MakePlan({ends.from, ends.to, problem.dtype}, free);
      RC_ASSERT(best.ok());
      Plan other = *all;
      other.options.objective = objective;
      RC_ASSERT(Value(*best) <= Allowed(other));
    }
  });
}

}  // namespace reshard::testing
