#include "planner/search/sequence.h"

#include <algorithm>
#include <numeric>
#include <queue>

#include "absl/container/flat_hash_map.h"
#include "reshard/layout/checked.h"

namespace reshard::search {
namespace {

enum class Move : uint8_t { kNone, kSlice, kAllGather, kAllToAll, kAllPermute, kReduceScatter, kAllReduce, kExchange };

// Least sum of factors (each at least 2) whose product is at least m: the fewest 1 + peers, summed over steps, that can
// bring the elements of m shards together.
int64_t LeastFactorSum(int64_t m) {
  if (m <= 1) return 0;
  if (m <= 3) return m;
  return std::min(2 + LeastFactorSum(CeilDiv(m, 2)), 3 + LeastFactorSum(CeilDiv(m, 3)));
}

class Search {
 public:
  Search(const DigitModel& model, DType dtype, const PlanOptions& options, const std::optional<Cost>& bound,
         int64_t budget)
      : model_(model),
        options_(options),
        bound_(bound),
        budget_(budget),
        element_(SizeOf(dtype)),
        k_(model.num_digits()) {
    cap_ = std::max(model.LocalElements(model.source()), model.LocalElements(model.target()));
    const auto& levels = options.topology.levels;
    for (int e = 0; e < k_; ++e) {
      // The level a digit crosses when ids follow positions; final prices use the real ids.
      const Digit& digit = model.refined()[static_cast<size_t>(e)];
      int level = 0;
      while (level + 1 < static_cast<int>(levels.size()) &&
             digit.stride * digit.size > levels[static_cast<size_t>(level)].devices) {
        ++level;
      }
      level_of_digit_.push_back(level);
    }
    min_latency_ = levels[0].latency_ns;
    fastest_ = 0;
    for (size_t i = 0; i < levels.size(); ++i) {
      min_latency_ = std::min(min_latency_, levels[i].latency_ns);
      if (levels[i].bytes_per_second > levels[static_cast<size_t>(fastest_)].bytes_per_second)
        fastest_ = static_cast<int>(i);
    }
    place_digit_.assign(model.places().size(), -1);
    target_digit_.assign(model.places().size(), -1);
    for (int e = 0; e < k_; ++e) {
      const int8_t at = model.target().at[static_cast<size_t>(e)];
      if (at >= 0) target_digit_[static_cast<size_t>(at)] = e;
    }
    reduces_ = false;
    for (int e = 0; e < k_; ++e) reduces_ |= model.source().at[static_cast<size_t>(e)] == kPendingDigit;
    target_local_ = model.LocalElements(model.target());
  }

  SequenceResult Run();

 private:
  struct Node {
    State state;
    Cost g{};
    int64_t parent = -1;
    Move move = Move::kNone;
    bool closed = false;
  };
  struct Open {
    Cost f;
    int64_t order;  // first come, first served among equals
    int64_t node;
    bool operator<(const Open& other) const { return f != other.f ? f > other.f : order > other.order; }
  };

  Cost Total(int64_t recv_max, int64_t recv_total, int64_t time, int64_t steps) const {
    const int64_t objective = options_.objective == Objective::kTime    ? time
                              : options_.objective == Objective::kBytes ? recv_max
                                                                        : steps;
    return {objective, 0, 0, recv_max, recv_total, time, steps};
  }
  int64_t StepTime(int level, int64_t peers, int64_t bytes) const {
    return options_.topology.StepTime(level, peers, bytes);
  }

  // What the target still lacks when the digits not yet reduced count as replicated.
  Cost Heuristic(const State& state) const;
  void LackedElements(const State& state, int64_t* max, int64_t* total) const;

  bool OverBudget() const { return generated_ > budget_; }
  void Expand(int64_t index);
  std::vector<Hop> PathTo(int64_t index) const;
  void Emit(const State& next, Move move, int64_t group, int level, int64_t extra_total_numerator);
  void ChooseGather(int e, State next, int64_t group, int level, int64_t local);
  void ChooseSlice(int e, State next, bool any);
  void ChooseAllToAll(int e, State next, int64_t group, int level);
  void ChooseScatter(int e, State next, int64_t group, int level);
  void ChooseAllReduce(int e, State next, int64_t group, int level);
  void ChoosePermute(size_t index, State next, bool changed);
  int64_t PermutedFraction(const State& a, const State& b, int* level) const;

  const DigitModel& model_;
  const PlanOptions& options_;
  const std::optional<Cost>& bound_;
  const int64_t budget_;
  const int64_t element_;
  const int k_;
  int64_t cap_ = 0;
  std::vector<int> level_of_digit_;
  int64_t min_latency_ = 0;
  int fastest_ = 0;
  std::vector<int> target_digit_;  // per place
  bool reduces_ = false;
  int64_t target_local_ = 1;

  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, int64_t> index_;
  std::priority_queue<Open> open_;
  int64_t generated_ = 0;

  // The node being expanded.
  int64_t at_ = 0;
  State from_;
  Cost g_{};
  int64_t local_ = 0;
  std::vector<int> place_digit_;  // per place: the digit there, or -1
  std::vector<int> occupied_;     // places
  std::vector<bool> taken_;       // per place, while moves are being chosen
};

void Search::LackedElements(const State& state, int64_t* max, int64_t* total) const {
  // The target's places: same digit on both sides, another digit (a clash), or one side only.
  int64_t overlap = model_.elements();
  bool clash = false;
  std::array<int8_t, kMaxSearchDigits> parent;
  for (int e = 0; e < k_; ++e) parent[static_cast<size_t>(e)] = static_cast<int8_t>(e);
  auto find = [&](int8_t e) {
    while (parent[static_cast<size_t>(e)] != e) e = parent[static_cast<size_t>(e)];
    return e;
  };
  int64_t agree = 1;  // one device in so many has clashing digits with equal coordinates
  for (int e = 0; e < k_; ++e) {
    const int8_t place = state.at[static_cast<size_t>(e)];
    if (place < 0) continue;
    overlap /= model_.digit_size(e);
    const int other = target_digit_[static_cast<size_t>(place)];
    if (other < 0 || other == e) continue;
    clash = true;
    const int8_t a = find(static_cast<int8_t>(e)), b = find(static_cast<int8_t>(other));
    if (a != b) {
      parent[static_cast<size_t>(a)] = b;
      agree *= model_.digit_size(e);
    }
  }
  for (int e = 0; e < k_; ++e) {
    const int8_t place = model_.target().at[static_cast<size_t>(e)];
    if (place < 0) continue;
    // The target narrows the overlap further unless the state already uses that place.
    bool used = false;
    for (int s = 0; s < k_; ++s) used |= state.at[static_cast<size_t>(s)] == place;
    if (!used) overlap /= model_.digit_size(e);
  }
  *max = clash ? target_local_ : target_local_ - overlap;
  *total = model_.devices() * target_local_ - model_.devices() / agree * overlap;
}

Cost Search::Heuristic(const State& state) const {
  if (state == model_.target()) return {};
  int64_t max = 0, total = 0;
  LackedElements(state, &max, &total);
  int64_t shards = 1;  // distinct shards that meet a device's target box
  bool pending = false;
  for (int e = 0; e < k_; ++e) {
    const int8_t place = state.at[static_cast<size_t>(e)];
    if (place == kPendingDigit) {
      pending |= model_.target().at[static_cast<size_t>(e)] != kPendingDigit;
    } else if (place >= 0 && target_digit_[static_cast<size_t>(place)] < 0) {
      shards *= model_.digit_size(e);
    }
  }
  int64_t time = 0;
  if (max > 0 || pending) {
    time = min_latency_ * std::max<int64_t>(2, LeastFactorSum(shards));
    if (max > 0) time += StepTime(fastest_, 0, max * element_) - StepTime(fastest_, 0, 0);
  }
  return Total(max * element_, total * element_, time, 1);
}

// `total` of a step is given as elements received by all devices together.
void Search::Emit(const State& next, Move move, int64_t group, int level, int64_t permuted) {
  ++generated_;
  if (options_.boxes_only && !(next == model_.target()) && !(next == model_.source()) && !model_.IsBox(next)) return;
  const int64_t local = model_.LocalElements(next);
  if (local > cap_) return;
  int64_t recv = 0, total = 0, peers = group - 1;
  switch (move) {
    case Move::kSlice:
    case Move::kNone:
      peers = 0;
      break;
    case Move::kAllGather:
      recv = local_ * (group - 1);
      total = recv * model_.devices();
      break;
    case Move::kAllToAll:
      recv = local_ - local_ / group;
      total = recv * model_.devices();
      break;
    case Move::kReduceScatter:
      recv = local * (group - 1);
      total = recv * model_.devices();
      break;
    case Move::kAllReduce:
      recv = local_ + (group - 2) * CeilDiv(local_, group);
      total = 2 * local_ * (group - 1) * (model_.devices() / group);
      break;
    case Move::kAllPermute:
      peers = 1;
      recv = local_;
      total = permuted;
      break;
    case Move::kExchange: {
      LackedElements(from_, &recv, &total);
      peers = group - 1;
      break;
    }
  }
  const int64_t time = move == Move::kSlice ? 0 : StepTime(level, peers, recv * element_);
  const Cost step = Total(recv * element_, total * element_, time, 1);
  Cost g = g_;
  for (size_t i = 0; i < g.size(); ++i) g[i] += step[i];
  if (bound_ && g > *bound_) return;
  Cost f = Heuristic(next);
  for (size_t i = 0; i < f.size(); ++i) f[i] += g[i];
  if (bound_ && f >= *bound_) return;
  const auto [it, added] = index_.emplace(next.Key(), static_cast<int64_t>(nodes_.size()));
  if (added) {
    nodes_.push_back({next, g, at_, move, false});
  } else {
    Node& node = nodes_[static_cast<size_t>(it->second)];
    if (node.closed || node.g <= g) return;
    node.g = g;
    node.parent = at_;
    node.move = move;
  }
  open_.push({f, static_cast<int64_t>(generated_), it->second});
}

void Search::ChooseGather(int e, State next, int64_t group, int level, int64_t local) {
  if (OverBudget()) return;
  if (local > cap_) return;
  if (e == k_) {
    if (group > 1) Emit(next, Move::kAllGather, group, level, 0);
    return;
  }
  ChooseGather(e + 1, next, group, level, local);
  if (from_.at[static_cast<size_t>(e)] < 0) return;
  next.at[static_cast<size_t>(e)] = kReplicated;
  ChooseGather(e + 1, next, group * model_.digit_size(e), std::max(level, level_of_digit_[static_cast<size_t>(e)]),
               local * model_.digit_size(e));
}

void Search::ChooseSlice(int e, State next, bool any) {
  if (OverBudget()) return;
  if (e == k_) {
    if (any) Emit(next, Move::kSlice, 1, 0, 0);
    return;
  }
  ChooseSlice(e + 1, next, any);
  if (from_.at[static_cast<size_t>(e)] != kReplicated) return;
  for (size_t p = 0; p < taken_.size(); ++p) {
    if (taken_[p] || !model_.Fits(e, static_cast<int>(p))) continue;
    taken_[p] = true;
    next.at[static_cast<size_t>(e)] = static_cast<int8_t>(p);
    ChooseSlice(e + 1, next, true);
    taken_[p] = false;
  }
}

// Every member gets exactly V/n from every member only when the new places were empty before.
void Search::ChooseAllToAll(int e, State next, int64_t group, int level) {
  if (OverBudget()) return;
  if (e == k_) {
    if (group > 1) Emit(next, Move::kAllToAll, group, level, 0);
    return;
  }
  ChooseAllToAll(e + 1, next, group, level);
  if (from_.at[static_cast<size_t>(e)] < 0) return;
  for (size_t p = 0; p < taken_.size(); ++p) {
    if (taken_[p] || !model_.Fits(e, static_cast<int>(p))) continue;
    taken_[p] = true;
    next.at[static_cast<size_t>(e)] = static_cast<int8_t>(p);
    ChooseAllToAll(e + 1, next, group * model_.digit_size(e), std::max(level, level_of_digit_[static_cast<size_t>(e)]));
    taken_[p] = false;
  }
}

void Search::ChooseScatter(int e, State next, int64_t group, int level) {
  if (OverBudget()) return;
  if (e == k_) {
    if (group > 1) Emit(next, Move::kReduceScatter, group, level, 0);
    return;
  }
  ChooseScatter(e + 1, next, group, level);
  const auto i = static_cast<size_t>(e);
  if (from_.at[i] != kPendingDigit || model_.target().at[i] == kPendingDigit) return;
  for (size_t p = 0; p < taken_.size(); ++p) {
    if (taken_[p] || !model_.Fits(e, static_cast<int>(p))) continue;
    taken_[p] = true;
    next.at[i] = static_cast<int8_t>(p);
    ChooseScatter(e + 1, next, group * model_.digit_size(e), std::max(level, level_of_digit_[i]));
    taken_[p] = false;
  }
}

void Search::ChooseAllReduce(int e, State next, int64_t group, int level) {
  if (OverBudget()) return;
  if (e == k_) {
    if (group > 1) Emit(next, Move::kAllReduce, group, level, 0);
    return;
  }
  ChooseAllReduce(e + 1, next, group, level);
  const auto i = static_cast<size_t>(e);
  if (from_.at[i] != kPendingDigit || model_.target().at[i] == kPendingDigit) return;
  next.at[i] = kReplicated;
  ChooseAllReduce(e + 1, next, group * model_.digit_size(e), std::max(level, level_of_digit_[i]));
}

// The same places, other digits there: chosen place by place among all digits that are not pending.
void Search::ChoosePermute(size_t index, State next, bool changed) {
  if (OverBudget()) return;
  if (index == occupied_.size()) {
    if (!changed) return;
    int level = 0;
    const int64_t unchanged = PermutedFraction(from_, next, &level);
    Emit(next, Move::kAllPermute, 2, level, local_ * (model_.devices() - unchanged));
    return;
  }
  const int place = occupied_[index];
  const int current = place_digit_[static_cast<size_t>(place)];
  for (int e = 0; e < k_; ++e) {
    const auto i = static_cast<size_t>(e);
    if (next.at[i] != kReplicated || from_.at[i] == kPendingDigit || !model_.Fits(e, place)) continue;
    next.at[i] = static_cast<int8_t>(place);
    ChoosePermute(index + 1, next, changed || e != current);
    next.at[i] = kReplicated;
  }
}

// Devices that keep their shard: those whose old and new digit agree at every place.
int64_t Search::PermutedFraction(const State& a, const State& b, int* level) const {
  std::array<int, kMaxSearchDigits> parent;
  std::iota(parent.begin(), parent.end(), 0);
  auto find = [&](int e) {
    while (parent[static_cast<size_t>(e)] != e) e = parent[static_cast<size_t>(e)];
    return e;
  };
  int64_t agree = 1;
  for (int e = 0; e < k_; ++e) {
    const int8_t place = a.at[static_cast<size_t>(e)];
    if (place < 0) continue;
    for (int f = 0; f < k_; ++f) {
      if (b.at[static_cast<size_t>(f)] != place || e == f) continue;
      *level = std::max({*level, level_of_digit_[static_cast<size_t>(e)], level_of_digit_[static_cast<size_t>(f)]});
      const int x = find(e), y = find(f);
      if (x == y) continue;
      parent[static_cast<size_t>(x)] = y;
      agree *= model_.digit_size(e);
    }
  }
  return model_.devices() / agree;
}

void Search::Expand(int64_t index) {
  at_ = index;
  from_ = nodes_[static_cast<size_t>(index)].state;
  g_ = nodes_[static_cast<size_t>(index)].g;
  local_ = model_.LocalElements(from_);
  std::fill(place_digit_.begin(), place_digit_.end(), -1);
  taken_.assign(place_digit_.size(), false);
  occupied_.clear();
  bool any_replicated = false, any_pending = false;
  for (int e = 0; e < k_; ++e) {
    const int8_t place = from_.at[static_cast<size_t>(e)];
    any_replicated |= place == kReplicated;
    any_pending |= place == kPendingDigit && model_.target().at[static_cast<size_t>(e)] != kPendingDigit;
    if (place < 0) continue;
    place_digit_[static_cast<size_t>(place)] = e;
    taken_[static_cast<size_t>(place)] = true;
    occupied_.push_back(place);
  }
  const OpSet& ops = options_.ops;
  if (ops.contains(Op::kSlice) && any_replicated && nodes_[static_cast<size_t>(index)].move != Move::kSlice) {
    ChooseSlice(0, from_, false);
  }
  if (ops.contains(Op::kAllGather) && !occupied_.empty()) ChooseGather(0, from_, 1, 0, local_);
  if (ops.contains(Op::kAllToAll) && !occupied_.empty()) ChooseAllToAll(0, from_, 1, 0);
  if (ops.contains(Op::kAllPermute) && !occupied_.empty()) {
    State cleared = from_;
    for (int place : occupied_) cleared.at[static_cast<size_t>(place_digit_[static_cast<size_t>(place)])] = kReplicated;
    ChoosePermute(0, cleared, false);
  }
  if (any_pending) {
    if (ops.contains(Op::kReduceScatter)) ChooseScatter(0, from_, 1, 0);
    if (ops.contains(Op::kAllReduce)) ChooseAllReduce(0, from_, 1, 0);
  } else if (reduces_ && ops.contains(Op::kExchange) && !options_.boxes_only) {
    // After the reduction an Exchange may be the cheapest way home.
    int64_t shards = 1;
    for (int e = 0; e < k_; ++e) {
      const int8_t place = from_.at[static_cast<size_t>(e)];
      if (place >= 0 && target_digit_[static_cast<size_t>(place)] < 0) shards *= model_.digit_size(e);
    }
    Emit(model_.target(), Move::kExchange, std::max<int64_t>(2, shards),
         static_cast<int>(options_.topology.levels.size()) - 1, 0);
  }
}

// The chain of layouts that leads to a node.
std::vector<Hop> Search::PathTo(int64_t index) const {
  std::vector<State> states;
  for (int64_t i = index; i >= 0; i = nodes_[static_cast<size_t>(i)].parent) {
    states.push_back(nodes_[static_cast<size_t>(i)].state);
  }
  const DigitModel model = model_.Compacted(states);
  std::vector<Hop> out;
  for (int64_t i = index; nodes_[static_cast<size_t>(i)].parent >= 0; i = nodes_[static_cast<size_t>(i)].parent) {
    const Node& node = nodes_[static_cast<size_t>(i)];
    Hop hop;
    hop.kind = node.move == Move::kReduceScatter ? Hop::Kind::kReduceScatter
               : node.move == Move::kAllReduce   ? Hop::Kind::kAllReduce
                                                 : Hop::Kind::kMove;
    hop.to = model.ToLayout(node.state);
    out.push_back(std::move(hop));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

SequenceResult Search::Run() {
  nodes_.push_back({model_.source(), {}, -1, Move::kNone, false});
  index_.emplace(model_.source().Key(), 0);
  open_.push({Heuristic(model_.source()), 0, 0});
  while (!open_.empty() && !OverBudget()) {
    const int64_t index = open_.top().node;
    open_.pop();
    Node& node = nodes_[static_cast<size_t>(index)];
    if (node.closed) continue;
    node.closed = true;
    if (node.state == model_.target()) return {PathTo(index), true, true};
    Expand(index);
  }
  // Out of budget: a path may be known all the same, only its optimality is not.
  const auto target = index_.find(model_.target().Key());
  if (target == index_.end()) return {{}, false, !OverBudget()};
  return {PathTo(target->second), true, false};
}

}  // namespace

SequenceResult SearchSequence(const DigitModel& model, DType dtype, const PlanOptions& options,
                              const std::optional<Cost>& bound, int64_t budget) {
  return Search(model, dtype, options, bound, budget).Run();
}

}  // namespace reshard::search
