#include "planner/candidates/between_meshes.h"

#include <algorithm>
#include <cassert>
#include <optional>

#include "layout/axes.h"

namespace reshard::candidates {
namespace {

// Dimensions that are tried for the further cut.
constexpr size_t kMaxDims = 2;

// The parts of the mesh's axes that the layout's dimensions do not use, partial axes among them.
std::vector<AxisRef> UnusedAxes(const Layout& layout) {
  return layout::FreeAxes(layout.mesh(), layout::DimAxes(layout));
}

int64_t Parts(const DimLayout& dim) {
  int64_t out = 1;
  for (const DimLayout& inner : dim.flattened) out *= Parts(inner);
  for (const Factor& factor : dim.factors) out *= factor.parts();
  return out;
}

// The layout with dimension d cut further along all these axes, and nothing partial. nullopt where that would leave
// devices without elements.
std::optional<Layout> CutAlong(const Layout& layout, const std::vector<AxisRef>& axes, int d) {
  std::vector<DimLayout> dims = layout.dims();
  DimLayout& dim = dims[d];
  for (const AxisRef& ref : axes) dim.factors.push_back(Factor::Along(ref));
  if (Parts(dim) > dim.size) return std::nullopt;
  auto out = Layout::Create(layout.mesh(), std::move(dims));
  if (!out.ok()) return std::nullopt;
  return *std::move(out);
}

// Dimensions that both cuts divide evenly come first; among equals, the slowest ones, whose parts are contiguous.
std::vector<int> DimsToCut(const Layout& source, const Layout& target, int64_t source_parts, int64_t target_parts) {
  std::vector<std::pair<bool, int>> ranked;
  for (int d = 0; d < source.rank(); ++d) {
    const int64_t size = source.dim(d).size;
    const int64_t from = Parts(source.dim(d)) * source_parts, to = Parts(target.dim(d)) * target_parts;
    if (size >= std::max(from, to)) ranked.emplace_back(size % from != 0 || size % to != 0, d);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<int> out;
  for (const auto& [uneven, d] : ranked) {
    if (out.size() < kMaxDims) out.push_back(d);
  }
  return out;
}

// The steps of the best plan within one mesh, nothing when there is none.
std::optional<Chain> ChainWithin(const Layout& from, const Layout& to, const PlanWithin& plan_within) {
  Chain steps;
  if (from == to) return steps;
  const auto plan = plan_within(from, to);
  if (!plan.ok()) return std::nullopt;
  for (const Step& step : plan->steps) {
    const cost::ChainStep::Kind kind = step.op == Op::kReduceScatter ? cost::ChainStep::Kind::kReduceScatter
                                       : step.op == Op::kAllReduce   ? cost::ChainStep::Kind::kAllReduce
                                       : step.op == Op::kAllPermute  ? cost::ChainStep::Kind::kPermute
                                                                     : cost::ChainStep::Kind::kMove;
    steps.push_back({kind, step.to});
  }
  return steps;
}

}  // namespace

std::vector<Chain> CrossOnceChains(const Layout& source, const Layout& target, const PlanWithin& plan_within) {
  assert(source.mesh() != target.mesh());
  std::vector<Chain> out;
  const std::vector<AxisRef> of_source = UnusedAxes(source), of_target = UnusedAxes(target);
  auto product = [](const std::vector<AxisRef>& axes) {
    int64_t parts = 1;
    for (const AxisRef& ref : axes) parts *= ref.size;
    return parts;
  };
  const int64_t source_parts = product(of_source), target_parts = product(of_target);
  if (source_parts == 1 && target_parts == 1) return out;
  using Part = std::optional<Chain>;
  auto add = [&](const Part& before, const Layout& m2, const Part& after) {
    if (!before || !after) return;
    Chain steps = *before;
    steps.push_back({cost::ChainStep::Kind::kMove, m2});
    steps.insert(steps.end(), after->begin(), after->end());
    // The plan between equivalent layouts has no steps.
    if (steps.size() > 1 && steps.back().to == target) out.push_back(std::move(steps));
  };
  const Part none = Chain();
  for (int d : DimsToCut(source, target, source_parts, target_parts)) {
    const auto m1 = source_parts > 1 ? CutAlong(source, of_source, d) : source;
    const auto m2 = target_parts > 1 ? CutAlong(target, of_target, d) : target;
    const Part to_m1 = m1 ? ChainWithin(source, *m1, plan_within) : std::nullopt;
    const Part from_m2 = m2 ? ChainWithin(*m2, target, plan_within) : std::nullopt;
    if (m2) add(to_m1, *m2, from_m2);
    if (target_parts > 1) add(to_m1, target, none);
    if (m2 && source_parts > 1 && !source.partial()) add(none, *m2, from_m2);
  }
  return out;
}

Proposal BetweenMeshes(const Task& task, const SoFar&) {
  if (task.source.mesh() == task.target.mesh() || task.source.num_elements() == 0 || task.options.boxes_only) return {};
  return {.chains = CrossOnceChains(task.source, task.target, task.plan_within)};
}

int64_t CrossingBytes(const cost::PricedChain& chain) {
  int64_t out = 0;
  for (const Step& step : chain.steps) out += step.crosses_meshes() ? step.recv_bytes_total : 0;
  return out;
}

}  // namespace reshard::candidates
