#include "planner/candidates/fallback.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "layout/axes.h"
#include "planner/cost/lower_bound.h"
#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"

namespace reshard::candidates {
namespace {

constexpr size_t kMaxLayouts = 160;
constexpr int64_t kFewDevices = 511;  // on more, Staged looks for chains with fewer peers

bool Overlaps(const AxisRef& a, const AxisRef& b) {
  return a.axis == b.axis && a.pre < b.pre * b.size && b.pre < a.pre * a.size;
}

std::vector<AxisRef> UsedAxes(const Layout& layout) {
  std::vector<AxisRef> out = layout::DimAxes(layout);
  if (layout.partial()) out.insert(out.end(), layout.partial()->axes.begin(), layout.partial()->axes.end());
  return out;
}

// Dimension d of `layout` cut further along `axes`; nothing when the algebra refuses it.
std::optional<Layout> CutFurther(const Layout& layout, int d, const std::vector<AxisRef>& axes) {
  auto dims = layout.dims();
  for (const AxisRef& ref : axes) dims[d].factors.push_back(Factor::Along(ref));
  auto out = Layout::Create(layout.mesh(), std::move(dims), layout.partial());
  if (!out.ok()) return std::nullopt;
  return *std::move(out);
}

using Factors = std::vector<Factor>;

// Leading factors of `first` followed by leading factors of `second` that use other axes.
void Joined(const Factors& first, const Factors& second, std::vector<Factors>& out) {
  for (size_t i = 0; i <= first.size(); ++i) {
    for (size_t j = 0; j <= second.size(); ++j) {
      Factors joined(first.begin(), first.begin() + static_cast<ptrdiff_t>(i));
      bool clash = false;
      for (size_t k = 0; k < j; ++k) {
        for (const Factor& factor : joined) {
          clash |= factor.has_axis() && second[k].has_axis() && Overlaps(factor.axis, second[k].axis);
        }
        joined.push_back(second[k]);
      }
      if (!clash && std::find(out.begin(), out.end(), joined) == out.end()) out.push_back(std::move(joined));
    }
  }
}

std::vector<Layout> CandidateLayouts(const Layout& source, const Layout& target) {
  std::vector<std::vector<Factors>> options(static_cast<size_t>(source.rank()));
  for (int d = 0; d < source.rank(); ++d) {
    auto& choices = options[d];
    Joined(source.dim(d).factors, target.dim(d).factors, choices);
    Joined(target.dim(d).factors, source.dim(d).factors, choices);
  }
  std::vector<Layout> out{source, target};
  std::vector<size_t> at(options.size(), 0);
  while (out.size() < kMaxLayouts) {
    auto dims = source.dims();
    for (size_t d = 0; d < dims.size(); ++d) dims[d].factors = options[d][at[d]];
    auto layout = Layout::Create(source.mesh(), std::move(dims), source.partial());
    if (layout.ok() && !(*layout == source) && !(*layout == target)) out.push_back(*std::move(layout));
    size_t d = at.size();
    while (d > 0 && ++at[d - 1] == options[d - 1].size()) at[--d] = 0;
    if (d == 0) break;
  }
  return out;
}

}  // namespace

bool IsBox(const Layout& layout) {
  if (!layout.only_factors()) return false;
  for (const DimLayout& dim : layout.dims()) {
    bool cut_into_blocks = false;
    for (const Factor& factor : dim.factors) {
      if (factor.has_axis() && factor.axis.size > 1 && cut_into_blocks) return false;
      cut_into_blocks |= !factor.has_axis() && factor.blocks > 1;
    }
  }
  return true;
}

std::vector<Chain> ReductionChains(const Layout& source, const Layout& target) {
  std::vector<Chain> out;
  const auto reduced = cost::ReducedAxes(source, target);
  if (reduced.empty()) return out;
  std::vector<AxisRef> kept;
  if (target.partial()) kept = target.partial()->axes;
  std::erase_if(kept, [](const AxisRef& ref) { return ref.size == 1; });  // they may be of another mesh
  // The layout, still partial over the axes over which the target is partial.
  const auto settle = [&](const Layout& layout) { return *layout.WithPartial(Partial{source.partial()->op, kept}); };
  const Layout settled = settle(source);
  auto finish = [&](Chain chain) {
    const auto same = Equivalent(chain.back().to, target);
    // Without elements all layouts are equivalent, which says nothing about the step.
    const bool is_target = source.num_elements() > 0 ? same.ok() && *same : chain.back().to == target;
    if (source.mesh() == target.mesh() && is_target) {
      chain.back().to = target;
    } else {
      chain.push_back({cost::ChainStep::Kind::kMove, target});
    }
    out.push_back(std::move(chain));
  };
  finish({{cost::ChainStep::Kind::kAllReduce, settled}});
  std::vector<AxisRef> spare;
  const auto used = UsedAxes(source);
  for (int a = 0; a < source.mesh().num_axes(); ++a) {
    const AxisRef whole{a, 1, source.mesh().axis(a).size};
    const bool unused = std::none_of(used.begin(), used.end(), [&](const AxisRef& ref) { return ref.axis == a; });
    if (unused && whole.size > 1) spare.push_back(whole);
  }
  for (int d = 0; d < source.rank(); ++d) {
    if (const auto scattered = CutFurther(settled, d, reduced)) {
      finish({{cost::ChainStep::Kind::kReduceScatter, *scattered}});
    }
    if (spare.empty()) continue;
    const auto sliced = CutFurther(source, d, spare);
    if (!sliced) continue;
    const Layout sliced_settled = settle(*sliced);
    if (const auto scattered = CutFurther(sliced_settled, d, reduced)) {
      finish({{cost::ChainStep::Kind::kMove, *sliced}, {cost::ChainStep::Kind::kReduceScatter, *scattered}});
    }
  }
  return out;
}

Chain MovementChain(const Layout& source, const Layout& target, DType dtype, const PlanOptions& options,
                    int64_t less_than) {
  if (!(source.mesh() == target.mesh()) || !source.only_factors() || !target.only_factors()) return {};
  const std::vector<Layout> layouts = CandidateLayouts(source, target);
  const int64_t cap = std::max(source.MaxLocalElements(), target.MaxLocalElements());
  using Key = std::array<int64_t, 4>;  // objective, bytes, time, steps
  constexpr int64_t kInfinite = std::numeric_limits<int64_t>::max();
  std::vector<Key> best(layouts.size(), Key{kInfinite, 0, 0, 0});
  std::vector<size_t> parent(layouts.size(), 0);
  std::vector<bool> closed(layouts.size(), false);
  best[0] = {0, 0, 0, 0};
  PlanOptions unlimited = options;
  unlimited.memory_limit_bytes.reset();
  while (true) {
    size_t at = layouts.size();
    for (size_t i = 0; i < layouts.size(); ++i) {
      if (!closed[i] && best[i][0] != kInfinite && (at == layouts.size() || best[i] < best[at])) at = i;
    }
    if (at == layouts.size()) return {};
    if (at == 1) break;
    closed[at] = true;
    for (size_t next = 1; next < layouts.size(); ++next) {
      if (closed[next] || layouts[next].MaxLocalElements() > cap) continue;
      if (options.boxes_only && next != 1 && !IsBox(layouts[next])) continue;
      const auto priced = cost::Price(layouts[at], {{cost::ChainStep::Kind::kMove, layouts[next]}}, dtype, unlimited);
      if (!priced.ok()) continue;
      const Step& step = priced->steps[0];
      if (!options.ops.contains(step.op) || (options.boxes_only && step.op == Op::kExchange)) continue;
      const int64_t objective = options.objective == Objective::kTime    ? step.time_ns
                                : options.objective == Objective::kBytes ? step.recv_bytes_max
                                                                         : 1;
      const Key key = {best[at][0] + objective, best[at][1] + step.recv_bytes_max, best[at][2] + step.time_ns,
                       best[at][3] + 1};
      if (key[0] >= less_than) continue;
      if (best[next][0] == kInfinite || key < best[next]) {
        best[next] = key;
        parent[next] = at;
      }
    }
  }
  Chain out;
  for (size_t i = 1; i != 0; i = parent[i]) out.insert(out.begin(), {cost::ChainStep::Kind::kMove, layouts[i]});
  return out;
}

Proposal Fallback(const Task& task, const SoFar& so_far) {
  if (task.model || task.reduces) return {};
  int64_t less_than = std::numeric_limits<int64_t>::max();
  if (so_far.single_step) {
    const std::vector<Topology::Level>& levels = task.options.topology.levels;
    const int64_t latency = std::min_element(levels.begin(), levels.end(), [](const auto& a, const auto& b) {
                              return a.latency_ns < b.latency_ns;
                            })->latency_ns;
    // Two steps that move anything take two latencies each.
    if (task.options.objective != Objective::kTime || task.source.mesh().size() > kFewDevices || !so_far.cheapest ||
        so_far.cheapest->time_ns <= 4 * latency) {
      return {};
    }
    less_than = so_far.cheapest->time_ns;
  }
  Chain steps = MovementChain(task.source, task.target, task.dtype, task.options, less_than);
  if (steps.empty()) return {};
  return {.chains = {std::move(steps)}};
}

Proposal Reductions(const Task& task, const SoFar&) {
  if (!task.reduces) return {};
  return {.chains = ReductionChains(task.source, task.target)};
}

}  // namespace reshard::candidates
