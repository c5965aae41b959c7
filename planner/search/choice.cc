#include "planner/search/choice.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "planner/layout/axes.h"
#include "planner/search/between_meshes.h"
#include "planner/search/fallback.h"
#include "planner/search/islands.h"
#include "planner/search/lower_bound.h"
#include "planner/search/three_phase.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"

namespace reshard::search {

bool SameSteps(const std::vector<Step>& a, const std::vector<Step>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Step& x, const Step& y) { return x.op == y.op && x.to == y.to; });
}

absl::Status Choice::Validate() const {
  if (source_.shape() != target_.shape()) {
    return absl::InvalidArgumentError(absl::StrCat("source ", ToString(source_), " and target ", ToString(target_),
                                                   " are layouts of different shapes"));
  }
  // Every total is at most four times the whole tensor on every device.
  auto total = CheckedMul(source_.num_elements(), SizeOf(dtype_));
  if (total) total = CheckedMul(*total, 4);
  if (total) total = CheckedMul(*total, source_.mesh().size() + target_.mesh().size());
  if (!total) {
    return absl::InvalidArgumentError("the tensor's bytes on all devices together do not fit in 64 bits");
  }
  if (absl::Status valid = options_.topology.Validate(); !valid.ok()) return valid;
  if (options_.memory_limit_bytes && *options_.memory_limit_bytes < 0) {
    return absl::InvalidArgumentError("the memory limit is negative");
  }
  const std::vector<AxisRef> held = PendingAxes(source_);
  for (const AxisRef& ref : PendingAxes(target_)) {
    const bool comparable =
        source_.mesh() == target_.mesh() && source_.pending() && source_.pending()->op == target_.pending()->op;
    const bool found =
        comparable && std::any_of(held.begin(), held.end(), [&](const AxisRef& other) {
          return other.axis == ref.axis && other.pre <= ref.pre && ref.pre * ref.size <= other.pre * other.size;
        });
    if (!found) {
      return absl::UnimplementedError(absl::StrCat("the target has a pending ", Name(target_.pending()->op), " over ",
                                                   ToString(target_.mesh(), ref),
                                                   " that the source does not have; values cannot become partial"));
    }
  }
  return absl::OkStatus();
}

Cost Choice::KeyOf(const PricedChain& chain) const {
  const Totals& t = chain.totals;
  const auto steps = static_cast<int64_t>(chain.steps.size());
  const int64_t objective = options_.objective == Objective::kTime    ? t.time_ns
                            : options_.objective == Objective::kBytes ? t.recv_bytes_max
                                                                      : steps;
  Cost cost = {objective, 0, 0, t.recv_bytes_max, t.recv_bytes_total, t.time_ns, steps};
  if (options_.objective == Objective::kBytes && t.levels.size() > 1) {
    cost[0] = cost[1] = t.levels.back().nic_bytes_max;
    cost[2] = t.levels[t.levels.size() - 2].nic_bytes_max;
  }
  return cost;
}

bool Choice::Allowed(PricedChain& chain) const {
  for (Step& step : chain.steps) {
    if (options_.ops.contains(step.op)) continue;
    if (step.op == Op::kSlice || !options_.ops.contains(Op::kExchange) || step.op == Op::kReduceScatter ||
        step.op == Op::kAllReduce) {
      return false;
    }
    step.op = Op::kExchange;
  }
  return true;
}

absl::Status Choice::Add(const std::vector<Hop>& hops, bool searched) {
  for (size_t i = 0; options_.boxes_only && i + 1 < hops.size(); ++i) {
    if (!IsBox(hops[i].to)) return absl::OkStatus();
  }
  auto chain = Price(source_, hops, dtype_, options_);
  if (!chain.ok()) return chain.status();
  if (hops.size() == 1 && hops[0].kind == Hop::Kind::kMove && !searched) single_step_ = chain->totals;
  if (Allowed(*chain)) candidates_.push_back({*std::move(chain), searched});
  return absl::OkStatus();
}

absl::Status Choice::Collect() {
  const bool reduces = !ReducedAxes(source_, target_).empty();
  std::optional<MeshLevels> levels;
  if (options_.topology.num_levels() > 1) levels = LevelsOf(source_.mesh(), options_.topology);
  model_ = DigitModel::Create(source_, target_, options_.boxes_only, levels ? &*levels : nullptr);
  if (!model_ && levels) model_ = DigitModel::Create(source_, target_, options_.boxes_only);
  // With boxes an AllToAll is what the paper and Shardy mean by it: axes that move from dimension to dimension. Other
  // patterns that happen to trade equal parts do not count, so the search alone decides.
  if (!reduces && !(options_.boxes_only && model_)) {
    if (absl::Status s = Add({{Hop::Kind::kMove, target_}}, false); !s.ok()) return s;
  }
  const bool single_step = !candidates_.empty() && FitsMemory(candidates_[0].chain);
  if (!options_.boxes_only) {
    for (const auto& hops : ThreePhaseChains(source_, target_, options_.topology)) {
      if (absl::Status s = Add(hops, false); !s.ok() && !absl::IsInvalidArgument(s)) return s;
    }
  }
  if (!(source_.mesh() == target_.mesh()) && source_.num_elements() > 0) {
    for (const auto& hops : CrossOnceChains(source_, target_, dtype_, options_)) {
      if (absl::Status s = Add(hops, false); !s.ok() && !absl::IsInvalidArgument(s)) return s;
    }
  }
  if (absl::Status s = Search(single_step); !s.ok()) return s;
  if (reduces) {
    for (const auto& hops : ReductionChains(source_, target_)) {
      absl::Status s = Add(hops, false);
      if (!s.ok() && !absl::IsInvalidArgument(s)) return s;
    }
  }
  return absl::OkStatus();
}

absl::Status Choice::Search(bool single_step_allowed) {
  if (model_) {
    std::optional<Cost> bound;
    for (const Candidate& one : candidates_) {
      if (!FitsMemory(one.chain)) continue;
      const Cost key = KeyOf(one.chain);
      if (!bound || key < *bound) bound = key;
    }
    const bool exchange = options_.ops.contains(Op::kExchange);
    search_ = SearchSequence(*model_, dtype_, options_, bound,
                             exchange && single_step_allowed ? kBudgetBesideExchange : kBudgetAlone);
    return search_->found ? Add(search_->hops, true) : absl::OkStatus();
  }
  if (single_step_allowed || !ReducedAxes(source_, target_).empty()) return absl::OkStatus();
  const auto hops = MovementChain(source_, target_, dtype_, options_);
  return hops.empty() ? absl::OkStatus() : Add(hops, false);
}

Plan Choice::Empty() const {
  Plan plan;
  plan.source = source_;
  plan.target = target_;
  plan.dtype = dtype_;
  plan.options = options_;
  return plan;
}

absl::StatusOr<std::optional<Plan>> Choice::NothingToDo() const {
  auto same = Equivalent(source_, target_);
  if (!same.ok()) return same.status();
  if (!*same) return std::nullopt;
  Plan plan = Empty();
  plan.totals.intermediate_bytes_max = plan.totals.peak_bytes = source_.MaxLocalElements() * SizeOf(dtype_);
  plan.totals.levels.resize(options_.topology.levels.size());
  plan.bounds.intermediate_bytes_max = plan.totals.intermediate_bytes_max;
  plan.certificate = {Certificate::Kind::kLowerBound, "source and target are equivalent; nothing to do"};
  if (options_.memory_limit_bytes && plan.totals.peak_bytes > *options_.memory_limit_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the memory limit of ", *options_.memory_limit_bytes,
                                                     " bytes a device is too small: at least ", plan.totals.peak_bytes,
                                                     " bytes are needed"));
  }
  return plan;
}

std::vector<size_t> Choice::Ranked() const {
  std::vector<size_t> out;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (FitsMemory(candidates_[i].chain)) out.push_back(i);
  }
  const auto key = [&](size_t i) { return KeyOf(candidates_[i].chain); };
  std::stable_sort(out.begin(), out.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  if (out.empty() || source_.mesh() == target_.mesh() || options_.objective == Objective::kSteps) return out;
  // Between meshes a byte that crosses twice also takes the senders' links twice, which serve others too. Of plans that
  // receive the same, or are about as fast as the fastest, one that crosses with the fewest bytes goes first.
  const Cost fastest = key(out[0]);
  const auto near = [&](size_t i) {
    const Cost cost = key(i);
    if (options_.objective == Objective::kTime) return cost[0] - fastest[0] <= fastest[0] / 8;
    return std::equal(cost.begin(), cost.begin() + 5, fastest.begin());
  };
  auto best = out.begin();
  for (auto it = out.begin(); it != out.end(); ++it) {
    const auto crossing = [&](size_t i) { return CrossingBytes(candidates_[i].chain); };
    if (near(*it) && crossing(*it) < crossing(*best)) best = it;
  }
  std::rotate(out.begin(), best, best + 1);
  return out;
}

absl::StatusOr<Plan> Choice::Make() {
  if (absl::Status s = Validate(); !s.ok()) return s;
  auto nothing = NothingToDo();
  if (!nothing.ok()) return nothing.status();
  if (*nothing) return **std::move(nothing);
  if (absl::Status s = Collect(); !s.ok()) return s;
  const std::vector<size_t> ranked = Ranked();
  if (ranked.empty()) return NothingFits();
  Plan plan = Empty();
  if (absl::Status s = FindBounds(plan); !s.ok()) return s;
  plan.steps = candidates_[ranked[0]].chain.steps;
  plan.totals = candidates_[ranked[0]].chain.totals;
  Certify(candidates_[ranked[0]], plan);
  AddAlternatives(ranked[0], plan);
  return plan;
}

absl::StatusOr<std::vector<Plan>> Choice::MakeAll() {
  auto best = Make();
  if (!best.ok()) return best.status();
  std::vector<Plan> out{*std::move(best)};
  for (size_t i : Ranked()) {
    Plan plan = Empty();
    plan.bounds = out[0].bounds;
    plan.steps = candidates_[i].chain.steps;
    plan.totals = candidates_[i].chain.totals;
    Certify(candidates_[i], plan);
    const auto same = [&](const Plan& other) { return SameSteps(plan.steps, other.steps); };
    if (std::none_of(out.begin(), out.end(), same)) out.push_back(std::move(plan));
  }
  return out;
}

}  // namespace reshard::search
