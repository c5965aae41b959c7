#include "planner/batch/slot_rows.h"

#include <cassert>
#include <utility>
#include <vector>

#include "planner/cost/slot_bounds.h"

namespace reshard::batch {
namespace {

bool CutsOnly(const Layout& layout, int dim) {
  if (layout.partial() || layout.flattens()) return false;
  for (int d = 0; d < layout.rank(); ++d) {
    if (d != dim && !layout.dim(d).factors.empty()) return false;
  }
  return true;
}

// Rewrites the layouts of a plan over the dimensions of another tensor.
class OtherDims {
 public:
  OtherDims(const Problem& problem, const Plan& plan)
      : dims_(problem.source.dims()),
        to_dim_(*cost::SlotDimOf(problem.source, problem.target)),
        from_dim_(*cost::SlotDimOf(plan.source, plan.target)),
        known_{{plan.source, problem.source}, {plan.target, problem.target}} {}

  // False where the layout cuts another dimension.
  bool Replace(Layout& layout) {
    for (const auto& [of_plan, other] : known_) {
      if (!(of_plan == layout)) continue;
      layout = other;
      return true;
    }
    if (!CutsOnly(layout, from_dim_)) return false;
    dims_[static_cast<size_t>(to_dim_)] = layout.dim(from_dim_);
    auto other = Layout::Create(layout.mesh(), dims_);
    if (!other.ok()) return false;
    known_.emplace_back(layout, *other);
    layout = *std::move(other);
    return true;
  }
  bool Replace(std::vector<Step>& steps) {
    for (Step& step : steps) {
      if (!Replace(step.from) || !Replace(step.to)) return false;
    }
    return true;
  }

 private:
  std::vector<DimLayout> dims_;
  const int to_dim_, from_dim_;
  std::vector<std::pair<Layout, Layout>> known_;  // layouts of the plan, each with its replacement
};

}  // namespace

std::optional<SlotRows> SlotRows::Of(const Problem& problem) {
  const auto& [source, target, dtype] = problem;
  const std::optional<int> dim = cost::SlotDimOf(source, target);
  if (!dim || !(source.mesh() == target.mesh()) || source.num_elements() == 0 || source.shape() != target.shape()) {
    return std::nullopt;
  }
  if (!CutsOnly(source, *dim) || !CutsOnly(target, *dim)) return std::nullopt;
  SlotRows out{source.mesh(), source.dim(*dim), target.dim(*dim), 1, 1, dtype};
  for (int d = 0; d < source.rank(); ++d) {
    if (d != *dim) (d < *dim ? out.before : out.after) *= source.dim(d).size;
  }
  return out;
}

std::optional<Plan> WithDimsOf(const Problem& problem, const Plan& plan) {
  assert(plan.chunks.count == 1);
  OtherDims other(problem, plan);
  Plan out = plan;
  out.source = problem.source;
  out.target = problem.target;
  if (!other.Replace(out.steps)) return std::nullopt;
  for (Alternative& alternative : out.alternatives) {
    if (!other.Replace(alternative.steps)) return std::nullopt;
  }
  return out;
}

}  // namespace reshard::batch
