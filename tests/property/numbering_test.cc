// Names, the order of axes and dimensions and the numbering of devices decide nothing. Searched and shrunk by
// RapidCheck.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "tests/layouts.h"
#include "tests/property/ends.h"
#include "tests/property/search_bytes.h"

namespace reshard::testing {
namespace {

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

}  // namespace

TEST_CASE("figures do not depend on names") {
  SearchBytes("renamed axes", 1000, [](const std::vector<uint8_t>& bytes) {
    const RandomProblem problem = ProblemFrom(bytes, kPartial);
    const auto renamed = [](const std::string& text) {
      return absl::StrReplaceAll(text, {{"X", "b.2"}, {"Y", "_a"}, {"Z", "Data"}});
    };
    RandomProblem other = problem;
    other.mesh = renamed(problem.mesh);
    other.target_mesh = renamed(problem.target_mesh);
    other.from = renamed(problem.from);
    other.to = renamed(problem.to);
    const Ends a = EndsOf(problem);
    const Ends b = EndsOf(other);
    const auto plan = MakePlan({a.from, a.to, problem.dtype});
    const auto same = MakePlan({b.from, b.to, problem.dtype});
    RC_ASSERT(plan.ok() == same.ok());
    if (plan.ok()) RC_ASSERT(Figures(*plan) == Figures(*same));
  });
  SearchBytes("devices with other ids", 1000, [](const std::vector<uint8_t>& bytes) {
    const RandomProblem problem = ProblemFrom(bytes, kPartial);
    const Ends a = EndsOf(problem);
    const std::string moved = absl::StrCat(problem.mesh, "@100");
    const auto from = ParseLayout(problem.from, moved);
    const auto to = ParseLayout(problem.to, moved);
    RC_ASSERT(from.ok() && to.ok());
    const auto plan = MakePlan({a.from, a.to, problem.dtype});
    const auto same = MakePlan({*from, *to, problem.dtype});
    RC_ASSERT(plan.ok() == same.ok());
    if (plan.ok()) RC_ASSERT(Figures(*plan) == Figures(*same));
  });
  // {X:2,Y:3} lists its devices in another order than {Y:3,X:2}; ids that say so make the same devices hold the same.
  SearchBytes("axes in another order, every device holding what it did", 1000, [](const std::vector<uint8_t>& bytes) {
    const RandomProblem problem = ProblemFrom(bytes, kUneven);
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
    const auto from = ParseLayout(problem.from, other);
    const auto to = ParseLayout(problem.to, other);
    RC_ASSERT(from.ok() && to.ok());
    PlanOptions options;
    options.objective = Objective::kBytes;
    const auto plan = MakePlan({a.from, a.to, problem.dtype}, options);
    const auto same = MakePlan({*from, *to, problem.dtype}, options);
    RC_ASSERT(plan.ok() && same.ok());
    RC_ASSERT(plan->totals.recv_bytes_max == same->totals.recv_bytes_max);
    RC_ASSERT(plan->totals.recv_bytes_total == same->totals.recv_bytes_total);
    RC_ASSERT(plan->bounds.recv_bytes_total == same->bounds.recv_bytes_total);
  });
}

TEST_CASE("costs do not depend on how things are numbered") {
  // What must be equal: the objective, what is received, the bounds.
  const auto same = [](const absl::StatusOr<Plan>& a, const absl::StatusOr<Plan>& b) {
    RC_ASSERT(a.ok() == b.ok());
    if (!a.ok()) return;
    RC_ASSERT(Value(*a) == Value(*b));
    RC_ASSERT(a->bounds.recv_bytes_max == b->bounds.recv_bytes_max);
    RC_ASSERT(a->bounds.recv_bytes_total == b->bounds.recv_bytes_total);
    RC_ASSERT(a->bounds.intermediate_bytes_max == b->bounds.intermediate_bytes_max);
  };
  const auto with = [](const Ends& ends, Objective objective, bool named) {
    PlanOptions options = ends.problem.options;
    options.objective = objective;
    if (named) options.ops = options.ops.without(Op::kExchange);
    return options;
  };
  // All ops take what is uneven or partial too.
  for (const bool named : {false, true}) {
    SearchBytes(
        named ? "dimensions in another order, named ops" : "dimensions in another order", kTries,
        [&](const std::vector<uint8_t>& bytes) {
          const Ends ends = EndsFrom(bytes, named ? kDigits : kPartial);
          const auto turned = [&](const Layout& layout) {
            auto dims = layout.dims();
            if (named) {
              std::reverse(dims.begin(), dims.end());
            } else {
              std::rotate(dims.begin(), dims.begin() + (dims.empty() ? 0 : 1), dims.end());
            }
            return *Layout::Create(layout.mesh(), std::move(dims), layout.partial());
          };
          for (const Objective objective : kObjectives) {
            same(MakePlan({ends.from, ends.to, ends.problem.dtype}, with(ends, objective, named)),
                 MakePlan({turned(ends.from), turned(ends.to), ends.problem.dtype}, with(ends, objective, named)));
          }
        });
  }
  SearchBytes("devices with shuffled ids", kTries, [&](const std::vector<uint8_t>& bytes) {
    const Ends ends = EndsFrom(bytes, kDigits);
    const Mesh& mesh = ends.from.mesh();
    std::vector<int64_t> ids(static_cast<size_t>(mesh.size()));
    std::iota(ids.begin(), ids.end(), 3);
    Choices choices(bytes);
    for (size_t i = ids.size(); i > 1; --i) {
      std::swap(ids[i - 1], ids[choices.Pick(static_cast<int>(std::min<size_t>(i, 256)))]);
    }
    const std::string shuffled = ToString(*Mesh::Create(mesh.axes(), ids));
    const auto from = ParseLayout(ends.problem.from, shuffled);
    const auto to = ParseLayout(ends.problem.to, shuffled);
    RC_ASSERT(from.ok() && to.ok());
    for (const Objective objective : kObjectives) {
      for (const bool named : {false, true}) {
        same(MakePlan({ends.from, ends.to, ends.problem.dtype}, with(ends, objective, named)),
             MakePlan({*from, *to, ends.problem.dtype}, with(ends, objective, named)));
      }
    }
  });
  // The same layouts over the axes in reverse order are another problem of the same cost on a flat network.
  SearchBytes("axes in another order", kTries, [&](const std::vector<uint8_t>& bytes) {
    const Ends ends = EndsFrom(bytes, kDigits);
    std::vector<Mesh::Axis> axes(ends.from.mesh().axes().rbegin(), ends.from.mesh().axes().rend());
    const std::string reversed = ToString(*Mesh::Create(axes));
    const auto from = ParseLayout(ends.problem.from, reversed);
    const auto to = ParseLayout(ends.problem.to, reversed);
    RC_ASSERT(from.ok() && to.ok());
    for (const Objective objective : kObjectives) {
      for (const bool named : {false, true}) {
        same(MakePlan({ends.from, ends.to, ends.problem.dtype}, with(ends, objective, named)),
             MakePlan({*from, *to, ends.problem.dtype}, with(ends, objective, named)));
      }
    }
  });
}

}  // namespace reshard::testing
