// Properties of layouts and plans, searched and shrunk by RapidCheck. A problem is made from a list of bytes (see
// problems.h), so that shrinking the bytes shrinks the problem.
#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/report.h"
#include "tests/oracle/holdings.h"
#include "tests/property.h"
#include "tests/property/problems.h"
#include "tests/property/search_bytes.h"

namespace reshard::testing {
namespace {

struct Ends {
  Layout from;
  Layout to;
};

absl::StatusOr<Layout> Parse(const std::string& mesh_text, const std::string& layout_text) {
  auto mesh = ParseMesh(mesh_text);
  if (!mesh.ok()) return mesh.status();
  return ParseLayout(layout_text, std::make_shared<const Mesh>(*std::move(mesh)));
}

Ends EndsOf(const Problem& problem) {
  auto from = Parse(problem.mesh, problem.from);
  auto to = Parse(problem.target_mesh, problem.to);
  RC_ASSERT(from.ok());
  RC_ASSERT(to.ok());
  return {*std::move(from), *std::move(to)};
}

Problem ProblemFrom(const std::vector<uint8_t>& bytes, const Flavour& flavour) {
  Choices choices(bytes);
  Problem problem = MakeProblem(choices, flavour);
  RC_LOG() << problem.Text() << "\n";
  return problem;
}

constexpr Flavour kOneMesh = {.uneven = true, .sub_axes = true, .digits = true, .sizes = true};
constexpr Flavour kTwoMeshes = {.uneven = true, .sub_axes = true, .digits = true, .sizes = true, .two_meshes = true};
constexpr Flavour kPending = {.uneven = true, .sub_axes = true, .digits = true, .sizes = true, .pending = true};

// What must not depend on names: all figures of the totals and of every step.
std::vector<int64_t> Figures(const Plan& plan) {
  std::vector<int64_t> out = {
      plan.totals.recv_bytes_max,  plan.totals.recv_bytes_total, plan.totals.intermediate_bytes_max,
      plan.totals.peak_bytes,      plan.totals.time_ns,          plan.bounds.recv_bytes_max,
      plan.bounds.recv_bytes_total};
  for (const Step& step : plan.steps) {
    out.insert(out.end(), {static_cast<int64_t>(step.op), step.recv_bytes_max, step.send_bytes_max, step.peers_max});
  }
  return out;
}

int64_t Value(const Plan& plan) {
  if (plan.options.objective == Objective::kTime) return plan.totals.time_ns;
  if (plan.options.objective == Objective::kSteps) return static_cast<int64_t>(plan.steps.size());
  return plan.totals.recv_bytes_max;
}

}  // namespace

TEST_CASE("text round-trips") {
  SearchBytes("a layout and its mesh print what they were read from", 1000, [](const std::vector<uint8_t>& bytes) {
    const Problem problem = ProblemFrom(bytes, Flavour::Everything());
    for (const auto& [mesh, text] : {std::tie(problem.mesh, problem.from), std::tie(problem.target_mesh, problem.to)}) {
      const auto layout = Parse(mesh, text);
      RC_ASSERT(layout.ok());
      const std::string printed = ToString(*layout);
      const auto again = Parse(ToString(layout->mesh()), printed);
      RC_ASSERT(again.ok());
      RC_ASSERT(*again == *layout);
      RC_ASSERT(ToString(*again) == printed);
    }
  });
}

TEST_CASE("the library and the oracle read layouts alike") {
  SearchBytes("every device holds the same spans, and equivalence is the same", 1000,
              [](const std::vector<uint8_t>& bytes) {
                const Problem problem = ProblemFrom(bytes, kTwoMeshes);
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
    const Problem problem = ProblemFrom(bytes, {});
    std::vector<uint8_t> other = bytes;
    std::reverse(other.begin() + std::min<std::ptrdiff_t>(5, std::ssize(other)), other.end());
    const Problem via = ProblemFrom(other, {});
    RC_PRE(via.mesh == problem.mesh);
    const Ends ends = EndsOf(problem);
    const auto middle = Parse(via.mesh, via.to);
    RC_ASSERT(middle.ok());
    RC_PRE(middle->shape() == ends.from.shape());
    const auto bound = [](const Layout& a, const Layout& b) {
      return MakePlan(a, b, DType::kI8)->bounds.recv_bytes_max;
    };
    RC_ASSERT(bound(ends.from, ends.to) <= bound(ends.from, *middle) + bound(*middle, ends.to));
  });
}

TEST_CASE("planning is deterministic") {
  SearchBytes("the same problem gives the same bytes of JSON", 1000, [](const std::vector<uint8_t>& bytes) {
    const Problem problem = ProblemFrom(bytes, Flavour::Everything());
    const auto json = [&] {
      const Ends ends = EndsOf(problem);
      const auto plan = MakePlan(ends.from, ends.to, problem.dtype, problem.options);
      return plan.ok() ? *PlanToJson(*plan, true) : plan.status().ToString();
    };
    RC_ASSERT(json() == json());
  });
}

TEST_CASE("figures do not depend on names") {
  SearchBytes("renamed axes", 1000, [](const std::vector<uint8_t>& bytes) {
    const Problem problem = ProblemFrom(bytes, kPending);
    const auto renamed = [](const std::string& text) {
      return absl::StrReplaceAll(text, {{"X", "b.2"}, {"Y", "_a"}, {"Z", "Data"}});
    };
    Problem other = problem;
    other.mesh = renamed(problem.mesh);
    other.target_mesh = renamed(problem.target_mesh);
    other.from = renamed(problem.from);
    other.to = renamed(problem.to);
    const Ends a = EndsOf(problem);
    const Ends b = EndsOf(other);
    const auto plan = MakePlan(a.from, a.to, problem.dtype);
    const auto same = MakePlan(b.from, b.to, problem.dtype);
    RC_ASSERT(plan.ok() == same.ok());
    if (plan.ok()) RC_ASSERT(Figures(*plan) == Figures(*same));
  });
  SearchBytes("devices with other ids", 1000, [](const std::vector<uint8_t>& bytes) {
    const Problem problem = ProblemFrom(bytes, kPending);
    const Ends a = EndsOf(problem);
    const std::string moved = absl::StrCat(problem.mesh, "@100");
    const auto from = Parse(moved, problem.from);
    const auto to = Parse(moved, problem.to);
    RC_ASSERT(from.ok() && to.ok());
    const auto plan = MakePlan(a.from, a.to, problem.dtype);
    const auto same = MakePlan(*from, *to, problem.dtype);
    RC_ASSERT(plan.ok() == same.ok());
    if (plan.ok()) RC_ASSERT(Figures(*plan) == Figures(*same));
  });
  // {X:2,Y:3} lists its devices in another order than {Y:3,X:2}; ids that say so make the same devices hold the same.
  SearchBytes("axes in another order", 1000, [](const std::vector<uint8_t>& bytes) {
    const Problem problem = ProblemFrom(bytes, kOneMesh);
    const Ends a = EndsOf(problem);
    const Mesh& mesh = a.from.mesh();
    std::vector<Mesh::Axis> axes(mesh.axes().rbegin(), mesh.axes().rend());
    const Mesh reversed = *Mesh::Create(axes);
    std::vector<int64_t> ids;
    for (int64_t p = 0; p < reversed.size(); ++p) {
      int64_t position = 0;
      for (int axis = 0; axis < mesh.num_axes(); ++axis) {
        position += reversed.Coordinate(p, mesh.num_axes() - 1 - axis) * mesh.stride(axis);
      }
      ids.push_back(mesh.Device(position));
    }
    const std::string other = ToString(*Mesh::Create(axes, ids));
    const auto from = Parse(other, problem.from);
    const auto to = Parse(other, problem.to);
    RC_ASSERT(from.ok() && to.ok());
    PlanOptions options;
    options.objective = Objective::kBytes;
    const auto plan = MakePlan(a.from, a.to, problem.dtype, options);
    const auto same = MakePlan(*from, *to, problem.dtype, options);
    RC_ASSERT(plan.ok() && same.ok());
    RC_ASSERT(plan->totals.recv_bytes_max == same->totals.recv_bytes_max);
    RC_ASSERT(plan->totals.recv_bytes_total == same->totals.recv_bytes_total);
    RC_ASSERT(plan->bounds.recv_bytes_total == same->bounds.recv_bytes_total);
  });
}

// By time, between meshes, a plan may take an eighth longer than the fastest where fewer bytes cross.
int64_t Allowed(const Plan& other) {
  const bool slack = other.options.objective == Objective::kTime && !(other.source.mesh() == other.target.mesh());
  return Value(other) + (slack ? Value(other) / 8 : 0);
}

TEST_CASE("more freedom is never worse") {
  SearchBytes("all ops against some of them", 1000, [](const std::vector<uint8_t>& bytes) {
    const Problem problem = ProblemFrom(bytes, Flavour::Everything());
    const Ends ends = EndsOf(problem);
    PlanOptions restricted = problem.options;
    if (problem.limit_memory) restricted.boxes_only = true;
    PlanOptions free = restricted;
    free.ops = OpSet::All();
    free.boxes_only = false;
    const auto some = MakePlan(ends.from, ends.to, problem.dtype, restricted);
    const auto all = MakePlan(ends.from, ends.to, problem.dtype, free);
    RC_PRE(some.ok());
    RC_ASSERT(all.ok());
    RC_ASSERT(Value(*all) <= Allowed(*some));
    for (const Objective objective : {Objective::kTime, Objective::kBytes, Objective::kSteps}) {
      free.objective = objective;
      const auto best = MakePlan(ends.from, ends.to, problem.dtype, free);
      RC_ASSERT(best.ok());
      Plan other = *all;
      other.options.objective = objective;
      RC_ASSERT(Value(*best) <= Allowed(other));
    }
  });
}

}  // namespace reshard::testing
