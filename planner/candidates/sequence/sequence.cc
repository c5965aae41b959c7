#include "planner/candidates/sequence/sequence.h"

#include <algorithm>

#include "planner/candidates/sequence/sequence_search.h"

namespace reshard::sequence {

void SequenceSearch::Reach(int64_t from, const ReachedState& step) {
  if (!step.allowed) return;
  const digits::State& next = step.to;
  const int phase = step.phase;
  const cost::Cost g = nodes_[from].g + step.cost;
  if (bound_ && g >= *bound_) return;
  const cost::Cost h = space_.Heuristic(next);
  const cost::Cost f = g + h;
  if (bound_ && f >= *bound_) return;
  // From now on only cheaper paths matter.
  if (phase == kLabeled && next == space_.model.target()) bound_ = g;
  const auto [it, added] = index_.emplace(space_.KeyOf(next, phase), static_cast<int64_t>(nodes_.size()));
  if (added) {
    nodes_.push_back({next, phase, step.move, false, from, g});
  } else {
    // A cheaper path opens a node again, even an expanded one. Its older entry stays in the queue and is skipped once
    // the node is closed.
    Node& node = nodes_[it->second];
    if (node.g <= g) return;
    node = {next, phase, step.move, false, from, g};
  }
  open_.push({greedy_ ? h : f, generated_, it->second});
}

// The chain of layouts that leads to a node.
std::vector<cost::ChainStep> SequenceSearch::PathTo(int64_t index) const {
  std::vector<digits::State> states;
  for (int64_t i = index; i >= 0; i = nodes_[i].parent) {
    states.push_back(nodes_[i].state);
  }
  const digits::DigitModel model = space_.model.Compacted(states);
  std::vector<cost::ChainStep> out;
  for (int64_t i = index; nodes_[i].parent >= 0; i = nodes_[i].parent) {
    const Node& node = nodes_[i];
    cost::ChainStep step;
    step.kind = node.move == Move::kReduceScatter ? cost::ChainStep::Kind::kReduceScatter
                : node.move == Move::kAllReduce   ? cost::ChainStep::Kind::kAllReduce
                : node.move == Move::kAllPermute  ? cost::ChainStep::Kind::kPermute
                                                  : cost::ChainStep::Kind::kMove;
    step.to = model.ToLayout(node.state);
    out.push_back(std::move(step));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

SequenceResult SequenceSearch::Run(bool greedy) {
  greedy_ = greedy;
  // One start per phase: a path decides at its beginning whether a permute is to come and how far it reaches.
  const cost::Cost first = space_.Heuristic(space_.model.source());
  for (int phase = kLabeled; phase < (space_.options.ops.contains(Op::kAllPermute) ? space_.cost.num_tiers() : 0);
       ++phase) {
    const auto index = static_cast<int64_t>(nodes_.size());
    if (!index_.emplace(space_.KeyOf(space_.model.source(), phase), index).second) continue;
    nodes_.push_back({space_.model.source(), phase, Move::kNone, false, -1, {}});
    open_.push({first, index, index});
  }
  const SearchSpace::Key target = space_.KeyOf(space_.model.target(), kLabeled);
  SequenceResult out;
  out.exhausted = true;
  while (!open_.empty()) {
    const Open top = open_.top();
    if (generated_ > budget_) {
      // The heuristic never overestimates, so no path still to be found costs less than the smallest entry of the
      // queue.
      out.exhausted = false;
      out.lower_bound = top.f.objective;
      break;
    }
    open_.pop();
    Node& node = nodes_[top.node];
    if (node.closed) continue;
    node.closed = true;
    if (node.phase == kLabeled && node.state == space_.model.target()) break;
    expansion_.Run(node.state, node.phase, node.move, [this, from = top.node](const ReachedState& step) {
      ++generated_;
      Reach(from, step);
      return generated_ <= budget_;
    });
  }
  // Out of budget, a path may still be known; only its optimality is not.
  const auto found = index_.find(target);
  if (found == index_.end()) return out;
  out.found = true;
  out.steps = PathTo(found->second);
  out.objective = nodes_[found->second].g.objective;
  if (out.exhausted) out.lower_bound = out.objective;
  return out;
}

SequenceResult SearchSequence(const digits::DigitModel& model, DType dtype, const PlanOptions& options,
                              const std::optional<cost::Cost>& incumbent, int64_t budget) {
  const SearchSpace space(model, dtype, options);
  SequenceResult best = SequenceSearch(space, incumbent, budget).Run(false);
  if (best.found || best.exhausted) return best;
  // Out of budget without any path: a greedy search needs few states to find one. The first search still bounds how far
  // that path can be from the optimum.
  SequenceResult some = SequenceSearch(space, incumbent, budget / 4).Run(true);
  some.exhausted = false;
  some.lower_bound = best.lower_bound;
  return some;
}

}  // namespace reshard::sequence
