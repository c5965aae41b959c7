#include "reshard/planner/planner.h"

#include <algorithm>
#include <array>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/layout/axes.h"
#include "planner/search/between_meshes.h"
#include "planner/search/digit_model.h"
#include "planner/search/fallback.h"
#include "planner/search/islands.h"
#include "planner/search/lower_bound.h"
#include "planner/search/price.h"
#include "planner/search/sequence.h"
#include "planner/search/three_phase.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"
#include "reshard/planner/units.h"

namespace reshard {
namespace {

// States the search may generate: where an Exchange is at hand it bounds the cost and the search only looks for
// something cheaper, in well under a millisecond; where it is not allowed the search is exact for up to six digits, and
// beyond that stops after some 50 ms with a bound on the gap. Counted in states, so that every machine stops alike.
constexpr int64_t kBudgetBesideExchange = 2000;
constexpr int64_t kBudgetAlone = 150'000;
// Pairs with more moving digits than this do not get the best named sequence as an alternative to an Exchange.
constexpr int kAlternativeDigits = 3;

struct Candidate {
  search::PricedChain chain;
  bool searched = false;  // from the exact search
};

// State: the problem and every candidate priced so far. Invariant: candidates are legal chains of allowed ops from
// source to target; whether they fit the memory limit is judged when one is chosen.
class Planner {
 public:
  Planner(const Layout& source, const Layout& target, DType dtype, const PlanOptions& options)
      : source_(source), target_(target), dtype_(dtype), options_(options) {
    if (options_.boxes_only) options_.ops = options_.ops.without(Op::kExchange);
  }
  absl::StatusOr<Plan> Make();
  absl::StatusOr<std::vector<Plan>> MakeAll();

 private:
  // Everything of a plan but its steps.
  Plan Empty() const;
  // A plan without steps where the ends are equivalent.
  absl::StatusOr<std::optional<Plan>> NothingToDo() const;
  // The candidates that fit, best first.
  std::vector<size_t> Ranked() const;
  absl::Status Validate() const;
  absl::Status Collect();
  absl::Status Search(bool single_step_allowed);
  // Adds the chain when its ops are allowed; an allowed Exchange keeps that name where its pattern's is not allowed.
  absl::Status Add(const std::vector<search::Hop>& hops, bool searched);
  bool Allowed(search::PricedChain& chain) const;
  bool FitsMemory(const search::PricedChain& chain) const {
    return !options_.memory_limit_bytes || chain.smallest_peak_bytes <= *options_.memory_limit_bytes;
  }
  search::Cost KeyOf(const search::PricedChain& chain) const;
  absl::Status FindBounds(Plan& plan) const;
  absl::Status NothingFits() const;
  void Certify(const Candidate& best, Plan& plan) const;
  void AddAlternatives(size_t best, Plan& plan) const;
  Alternative Describe(const search::PricedChain& chain, const Plan& plan) const;

  const Layout& source_;
  const Layout& target_;
  const DType dtype_;
  PlanOptions options_;
  std::optional<Totals> single_step_;  // of the direct move, allowed or not; only without a reduction
  std::optional<search::DigitModel> model_;
  std::vector<Candidate> candidates_;
  std::optional<search::SequenceResult> search_;
};

absl::Status Planner::Validate() const {
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
  if (options_.topology.levels.empty()) return absl::InvalidArgumentError("the topology has no levels");
  for (size_t i = 0; i < options_.topology.levels.size(); ++i) {
    const Topology::Level& level = options_.topology.levels[i];
    const bool last = i + 1 == options_.topology.levels.size();
    if (level.bytes_per_second <= 0 || level.latency_ns < 0 || (!last && level.devices < 1)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "level ", i, " of the topology has no positive bandwidth, a negative ", "latency or no devices"));
    }
  }
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

search::Cost Planner::KeyOf(const search::PricedChain& chain) const {
  const Totals& t = chain.totals;
  const auto steps = static_cast<int64_t>(chain.steps.size());
  const int64_t objective = options_.objective == Objective::kTime    ? t.time_ns
                            : options_.objective == Objective::kBytes ? t.recv_bytes_max
                                                                      : steps;
  search::Cost cost = {objective, 0, 0, t.recv_bytes_max, t.recv_bytes_total, t.time_ns, steps};
  if (options_.objective == Objective::kBytes && t.levels.size() > 1) {
    cost[0] = cost[1] = t.levels.back().nic_bytes_max;
    cost[2] = t.levels[t.levels.size() - 2].nic_bytes_max;
  }
  return cost;
}

bool Planner::Allowed(search::PricedChain& chain) const {
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

absl::Status Planner::Add(const std::vector<search::Hop>& hops, bool searched) {
  for (size_t i = 0; options_.boxes_only && i + 1 < hops.size(); ++i) {
    if (!search::IsBox(hops[i].to)) return absl::OkStatus();
  }
  auto chain = search::Price(source_, hops, dtype_, options_);
  if (!chain.ok()) return chain.status();
  if (hops.size() == 1 && hops[0].kind == search::Hop::Kind::kMove && !searched) single_step_ = chain->totals;
  if (Allowed(*chain)) candidates_.push_back({*std::move(chain), searched});
  return absl::OkStatus();
}

absl::Status Planner::Collect() {
  const bool reduces = !search::ReducedAxes(source_, target_).empty();
  const auto levels = search::LevelsOf(source_.mesh(), options_.topology);
  model_ = search::DigitModel::Create(source_, target_, options_.boxes_only, levels ? &*levels : nullptr);
  if (!model_ && levels) model_ = search::DigitModel::Create(source_, target_, options_.boxes_only);
  // With boxes an AllToAll is what the paper and Shardy mean by it: axes that move from dimension to dimension. Other
  // patterns that happen to trade equal parts do not count, so the search alone decides.
  if (!reduces && !(options_.boxes_only && model_)) {
    if (absl::Status s = Add({{search::Hop::Kind::kMove, target_}}, false); !s.ok()) return s;
  }
  const bool single_step = !candidates_.empty() && FitsMemory(candidates_[0].chain);
  if (!options_.boxes_only) {
    for (const auto& hops : search::ThreePhaseChains(source_, target_, options_.topology)) {
      if (absl::Status s = Add(hops, false); !s.ok() && !absl::IsInvalidArgument(s)) return s;
    }
  }
  if (!(source_.mesh() == target_.mesh()) && source_.num_elements() > 0) {
    for (const auto& hops : search::CrossOnceChains(source_, target_, dtype_, options_)) {
      if (absl::Status s = Add(hops, false); !s.ok() && !absl::IsInvalidArgument(s)) return s;
    }
  }
  if (absl::Status s = Search(single_step); !s.ok()) return s;
  if (reduces) {
    for (const auto& hops : search::ReductionChains(source_, target_)) {
      absl::Status s = Add(hops, false);
      if (!s.ok() && !absl::IsInvalidArgument(s)) return s;
    }
  }
  return absl::OkStatus();
}

absl::Status Planner::Search(bool single_step_allowed) {
  if (model_) {
    std::optional<search::Cost> bound;
    for (const Candidate& one : candidates_) {
      if (!FitsMemory(one.chain)) continue;
      const search::Cost key = KeyOf(one.chain);
      if (!bound || key < *bound) bound = key;
    }
    const bool exchange = options_.ops.contains(Op::kExchange);
    search_ = search::SearchSequence(*model_, dtype_, options_, bound,
                                     exchange && single_step_allowed ? kBudgetBesideExchange : kBudgetAlone);
    return search_->found ? Add(search_->hops, true) : absl::OkStatus();
  }
  if (single_step_allowed || !search::ReducedAxes(source_, target_).empty()) return absl::OkStatus();
  const auto hops = search::MovementChain(source_, target_, dtype_, options_);
  return hops.empty() ? absl::OkStatus() : Add(hops, false);
}

absl::Status Planner::FindBounds(Plan& plan) const {
  if (single_step_) {
    // Without a reduction the direct exchange receives exactly what is missing: it is the bound.
    plan.bounds = {
        single_step_->recv_bytes_max, single_step_->recv_bytes_total, single_step_->intermediate_bytes_max, {}};
  } else {
    auto bounds = search::LowerBounds(source_, target_, dtype_);
    if (!bounds.ok()) return bounds.status();
    plan.bounds = *bounds;
  }
  plan.bounds.levels = search::LevelBounds(source_, target_, dtype_, options_.topology, plan.bounds);
  return absl::OkStatus();
}

absl::Status Planner::NothingFits() const {
  if (candidates_.empty()) {
    std::string ops;
    for (int i = 0; i < kNumOps; ++i) {
      if (options_.ops.contains(static_cast<Op>(i))) {
        absl::StrAppend(&ops, ops.empty() ? "" : ",", std::string(Name(static_cast<Op>(i))));
      }
    }
    return absl::FailedPreconditionError(absl::StrCat("no sequence of ", ops, " leads from ", ToString(source_), " to ",
                                                      ToString(target_), " within max(source, target) bytes a device; ",
                                                      "allow more ops"));
  }
  int64_t needed = std::numeric_limits<int64_t>::max();
  for (const Candidate& c : candidates_) needed = std::min(needed, c.chain.smallest_peak_bytes);
  return absl::ResourceExhaustedError(absl::StrCat("the memory limit of ", *options_.memory_limit_bytes,
                                                   " bytes a device is too small: at least ", needed,
                                                   " bytes are needed"));
}

void Planner::Certify(const Candidate& best, Plan& plan) const {
  const int64_t bound = plan.bounds.recv_bytes_max;
  // What the search summed up is what the plan costs: not so where maxima of steps fall on different devices, or where
  // device ids do not follow positions.
  const bool known = options_.topology.num_levels() == 1 || (model_ && model_->has_levels());
  const bool as_searched = search_ && known && model_->complete() && !options_.memory_limit_bytes &&
                           best.chain.sum_of_step_maxima == plan.totals.recv_bytes_max &&
                           (!search_->found || !best.searched || KeyOf(best.chain)[0] == search_->objective);
  const std::string space = options_.boxes_only ? "contiguous" : "digit-level";
  if (plan.totals.recv_bytes_max == bound) {
    plan.certificate = {Certificate::Kind::kLowerBound,
                        absl::StrCat("the worst device receives ", bound, " bytes; no algorithm can do with fewer")};
  } else if (as_searched && search_->exhausted) {
    plan.certificate = {Certificate::Kind::kExhaustive,
                        absl::StrCat("cheapest by ", std::string(Name(options_.objective)), " of all sequences over ",
                                     space, " layouts within max(source, target); ", plan.totals.recv_bytes_max,
                                     " bytes against a lower bound of ", bound)};
  } else {
    plan.certificate = {Certificate::Kind::kBestFound,
                        absl::StrCat("best of the plans tried; ", plan.totals.recv_bytes_max,
                                     " bytes against a lower bound of ", bound)};
    if (as_searched && search_->bound > 0) {
      const int64_t above = KeyOf(best.chain)[0] - search_->bound;
      const auto percent =
          static_cast<int64_t>((static_cast<__int128>(above) * 100 + search_->bound - 1) / search_->bound);
      absl::StrAppend(&plan.certificate.detail, "; by ", std::string(Name(options_.objective)), " at most ",
                      std::max<int64_t>(percent, 0), " % above the optimum over ", space, " sequences");
    } else if (!model_) {
      absl::StrAppend(&plan.certificate.detail, "; the pair does not fit the search over digit-level layouts");
    }
  }
  const std::vector<LevelBound>& levels = plan.bounds.levels;
  if (levels.size() < 2) return;
  const int64_t carried = plan.totals.levels.back().nic_bytes_max, least = levels.back().nic_recv_bytes_max;
  absl::StrAppend(&plan.certificate.detail, "; between islands of ",
                  options_.topology.levels[levels.size() - 2].devices, " devices ");
  if (least == 0 && carried == 0) {
    absl::StrAppend(&plan.certificate.detail, "nothing travels");
  } else if (carried == least) {
    absl::StrAppend(&plan.certificate.detail, "a link carries ", carried, " bytes; no algorithm can do with fewer");
  } else {
    absl::StrAppend(&plan.certificate.detail, "a link carries ", carried, " bytes against a lower bound of ", least);
  }
}

Alternative Planner::Describe(const search::PricedChain& chain, const Plan& plan) const {
  Alternative out;
  for (const Step& step : chain.steps) out.ops.push_back(step.op);
  out.recv_bytes_max = chain.totals.recv_bytes_max;
  out.intermediate_bytes_max = chain.totals.intermediate_bytes_max;
  out.time_ns = chain.totals.time_ns;
  auto times = [](int64_t more, int64_t less) {
    return less > 0 ? absl::StrFormat(" (%.2fx)", static_cast<double>(more) / static_cast<double>(less))
                    : std::string();
  };
  if (!FitsMemory(chain)) {
    out.rejected_because = absl::StrCat("needs ", chain.smallest_peak_bytes, " bytes, over the memory limit of ",
                                        *options_.memory_limit_bytes);
  } else if (chain.totals.intermediate_bytes_max > plan.bounds.intermediate_bytes_max) {
    out.rejected_because =
        absl::StrCat("holds ", HumanBytes(chain.totals.intermediate_bytes_max),
                     " on a device, over max(source, target) = ", HumanBytes(plan.bounds.intermediate_bytes_max),
                     times(chain.totals.intermediate_bytes_max, plan.bounds.intermediate_bytes_max));
  } else if (options_.objective == Objective::kTime && chain.totals.time_ns > plan.totals.time_ns) {
    out.rejected_because =
        absl::StrCat("slower: ", HumanTime(chain.totals.time_ns), " against ", HumanTime(plan.totals.time_ns),
                     times(chain.totals.time_ns, plan.totals.time_ns));
  } else if (options_.objective == Objective::kSteps && chain.steps.size() > plan.steps.size()) {
    out.rejected_because = absl::StrCat("more steps: ", chain.steps.size(), " against ", plan.steps.size());
  } else if (options_.objective == Objective::kBytes && chain.totals.levels.size() > 1 &&
             chain.totals.levels.back().nic_bytes_max > plan.totals.levels.back().nic_bytes_max) {
    const int64_t more = chain.totals.levels.back().nic_bytes_max, less = plan.totals.levels.back().nic_bytes_max;
    out.rejected_because = absl::StrCat("more over the slowest links: ", HumanBytes(more), " against ",
                                        HumanBytes(less), times(more, less));
  } else if (out.recv_bytes_max > plan.totals.recv_bytes_max) {
    out.rejected_because =
        absl::StrCat("receives more: ", HumanBytes(out.recv_bytes_max), " against ",
                     HumanBytes(plan.totals.recv_bytes_max), times(out.recv_bytes_max, plan.totals.recv_bytes_max));
  } else if (chain.totals.time_ns > plan.totals.time_ns) {
    out.rejected_because = absl::StrCat("as many bytes, but slower: ", HumanTime(chain.totals.time_ns), " against ",
                                        HumanTime(plan.totals.time_ns));
  } else if (chain.steps.size() > plan.steps.size()) {
    out.rejected_because =
        absl::StrCat("as many bytes and as fast, but ", chain.steps.size(), " steps against ", plan.steps.size());
  } else {
    out.rejected_because = "no better in any respect";
  }
  return out;
}

void Planner::AddAlternatives(size_t best, Plan& plan) const {
  const auto same_steps = [](const search::PricedChain& a, const search::PricedChain& b) {
    return std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(),
                      [](const Step& x, const Step& y) { return x.op == y.op && x.to == y.to; });
  };
  for (size_t i = 0; i < candidates_.size(); ++i) {
    bool seen = same_steps(candidates_[i].chain, candidates_[best].chain);  // the search and a fixed chain may agree
    for (size_t j = 0; j < i; ++j) seen |= same_steps(candidates_[i].chain, candidates_[j].chain);
    if (!seen) plan.alternatives.push_back(Describe(candidates_[i].chain, plan));
  }
  const bool reduces = !search::ReducedAxes(source_, target_).empty();
  // The best without an Exchange, where looking for it is cheap.
  if (!reduces && model_ && model_->num_moving() <= kAlternativeDigits && plan.steps[0].op == Op::kExchange) {
    PlanOptions named = options_;
    named.ops = named.ops.without(Op::kExchange);
    const auto found = search::SearchSequence(*model_, dtype_, named, std::nullopt, kBudgetBesideExchange);
    if (found.found) {
      const auto chain = search::Price(source_, found.hops, dtype_, options_);
      if (chain.ok()) plan.alternatives.push_back(Describe(*chain, plan));
    }
  }
  // What most programs do today: gather everything, then cut.
  if (reduces || !(source_.mesh() == target_.mesh())) return;
  std::vector<DimLayout> dims;
  for (int64_t size : source_.shape()) dims.push_back({size, {}});
  auto whole = Layout::Create(source_.mesh_ptr(), std::move(dims), source_.pending());
  if (!whole.ok()) return;
  const auto is_source = Equivalent(*whole, source_);
  const auto is_target = Equivalent(*whole, target_);
  if (!is_source.ok() || *is_source || !is_target.ok() || *is_target) return;
  const auto chain = search::Price(source_, {{search::Hop::Kind::kMove, *whole}, {search::Hop::Kind::kMove, target_}},
                                   dtype_, options_);
  if (chain.ok()) plan.alternatives.push_back(Describe(*chain, plan));
}

Plan Planner::Empty() const {
  Plan plan;
  plan.source = source_;
  plan.target = target_;
  plan.dtype = dtype_;
  plan.options = options_;
  return plan;
}

absl::StatusOr<std::optional<Plan>> Planner::NothingToDo() const {
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

std::vector<size_t> Planner::Ranked() const {
  std::vector<size_t> out;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (FitsMemory(candidates_[i].chain)) out.push_back(i);
  }
  const auto key = [&](size_t i) { return KeyOf(candidates_[i].chain); };
  std::stable_sort(out.begin(), out.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  if (out.empty() || source_.mesh() == target_.mesh() || options_.objective == Objective::kSteps) return out;
  // Between meshes a byte that crosses twice also takes the senders' links twice, which serve others too. Of plans that
  // receive the same, or are about as fast as the fastest, one that crosses with the fewest bytes goes first.
  const search::Cost fastest = key(out[0]);
  const auto near = [&](size_t i) {
    const search::Cost cost = key(i);
    if (options_.objective == Objective::kTime) return cost[0] - fastest[0] <= fastest[0] / 8;
    return std::equal(cost.begin(), cost.begin() + 5, fastest.begin());
  };
  auto best = out.begin();
  for (auto it = out.begin(); it != out.end(); ++it) {
    const auto crossing = [&](size_t i) { return search::CrossingBytes(candidates_[i].chain); };
    if (near(*it) && crossing(*it) < crossing(*best)) best = it;
  }
  std::rotate(out.begin(), best, best + 1);
  return out;
}

absl::StatusOr<Plan> Planner::Make() {
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

absl::StatusOr<std::vector<Plan>> Planner::MakeAll() {
  auto best = Make();
  if (!best.ok()) return best.status();
  std::vector<Plan> out{*std::move(best)};
  for (size_t i : Ranked()) {
    Plan plan = Empty();
    plan.bounds = out[0].bounds;
    plan.steps = candidates_[i].chain.steps;
    plan.totals = candidates_[i].chain.totals;
    Certify(candidates_[i], plan);
    const auto same = [&](const Plan& other) {
      return std::equal(plan.steps.begin(), plan.steps.end(), other.steps.begin(), other.steps.end(),
                        [](const Step& x, const Step& y) { return x.op == y.op && x.to == y.to; });
    };
    if (std::none_of(out.begin(), out.end(), same)) out.push_back(std::move(plan));
  }
  return out;
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const Layout& source, const Layout& target, DType dtype, const PlanOptions& options) {
  try {
    return Planner(source, target, dtype, options).Make();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory while planning");
  }
}

absl::StatusOr<std::vector<Plan>> CandidatePlans(const Layout& source, const Layout& target, DType dtype,
                                                 const PlanOptions& options) {
  try {
    return Planner(source, target, dtype, options).MakeAll();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory while planning");
  }
}

}  // namespace reshard
