#include "planner/choice/choice.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "layout/axes.h"
#include "planner/candidates/between_meshes.h"
#include "planner/candidates/fallback.h"
#include "planner/cost/lower_bound.h"
#include "planner/digits/domains.h"
#include "planner/transfers/sampled_loads.h"
#include "planner/transfers/slot_transfers.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"
#include "reshard/planner/units.h"
#include "status/macros.h"

namespace reshard::choice {

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
  RETURN_IF_ERROR(options_.topology.Validate());
  if (options_.memory_limit_bytes && *options_.memory_limit_bytes < 0) {
    return absl::InvalidArgumentError("the memory limit is negative");
  }
  RETURN_IF_ERROR(transfers::SlotDim(source_, target_).status());
  for (const Layout* end : {&source_, &target_}) {
    if (!end->partial() || end->slot_dim() || end->only_factors()) continue;
    return absl::UnimplementedError(absl::StrCat("the partial values of ", ToString(*end),
                                                 " do not move: it cuts dimensions before it flattens "
                                                 "them, and no plain factors say the same; reduce them first"));
  }
  const std::vector<AxisRef> held = layout::PartialAxes(source_);
  for (const AxisRef& ref : layout::PartialAxes(target_)) {
    const bool comparable =
        source_.mesh() == target_.mesh() && source_.partial() && source_.partial()->op == target_.partial()->op;
    const bool found =
        comparable && std::any_of(held.begin(), held.end(), [&](const AxisRef& other) {
          return other.axis == ref.axis && other.pre <= ref.pre && ref.pre * ref.size <= other.pre * other.size;
        });
    if (!found) {
      return absl::UnimplementedError(absl::StrCat("the target has a partial ", Name(target_.partial()->op), " over ",
                                                   ToString(target_.mesh(), ref),
                                                   " that the source does not have; values cannot become partial"));
    }
  }
  return absl::OkStatus();
}

cost::Cost Choice::KeyOf(const cost::PricedChain& chain) const {
  const Totals& t = chain.totals;
  const auto steps = static_cast<int64_t>(chain.steps.size());
  const int64_t objective = options_.objective == Objective::kTime    ? t.time_ns
                            : options_.objective == Objective::kBytes ? t.recv_bytes_max
                                                                      : steps;
  cost::Cost cost = {.objective = objective,
                     .recv_bytes_max = t.recv_bytes_max,
                     .recv_bytes_total = t.recv_bytes_total,
                     .time_ns = t.time_ns,
                     .steps = steps};
  if (options_.objective == Objective::kBytes && t.levels.size() > 1) {
    cost.objective = cost.far_bytes = t.levels.back().nic_bytes_max;
    cost.near_bytes = t.levels[t.levels.size() - 2].nic_bytes_max;
    // Where shards overlap, plans whose busiest links carry the same may differ in what all links carry.
    if (source_.slot_dim() || target_.slot_dim()) cost.far_bytes = t.levels.back().recv_bytes_total;
  }
  return cost;
}

bool Choice::Allowed(cost::PricedChain& chain) const {
  for (Step& step : chain.steps) {
    if (options_.ops.contains(step.op)) continue;
    if (step.op == Op::kSlice || !options_.ops.contains(Op::kExchange) || Reduces(step.op)) return false;
    step.op = Op::kExchange;
  }
  return true;
}

absl::Status Choice::Add(const candidates::Chain& chain, const candidates::Proposal& proposal) {
  const bool searched = proposal.search.has_value();
  for (size_t i = 0; options_.boxes_only && i + 1 < chain.size(); ++i) {
    if (!candidates::IsBox(chain[i].to)) return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(auto priced, cost::Price(source_, chain, dtype_, options_, maps_));
  const bool direct = chain.size() == 1 && chain[0].kind == cost::ChainStep::Kind::kMove && !searched;
  if (direct) single_step_ = priced.totals;
  if (!Allowed(priced)) return absl::OkStatus();
  if (proposal.faster_than_ns && priced.totals.time_ns >= *proposal.faster_than_ns) return absl::OkStatus();
  if (priced.totals.levels.size() > 1) {
    const int64_t across = priced.totals.levels.back().nic_bytes_max;
    so_far_.least_across = std::min(so_far_.least_across.value_or(across), across);
  }
  if (FitsMemory(priced)) {
    const cost::Cost key = KeyOf(priced);
    if (!so_far_.cheapest || key < *so_far_.cheapest) so_far_.cheapest = key;
    so_far_.single_step |= direct && candidates_.empty();
  }
  candidates_.push_back({std::move(priced), searched});
  return absl::OkStatus();
}

void Choice::Postpone(candidates::Proposal proposal) {
  for (candidates::Chain& chain : proposal.chains) {
    const int64_t time = cost::TimeAtLeast(source_, chain, dtype_, options_.topology, maps_);
    if (time >= *proposal.faster_than_ns) continue;
    so_far_.sampled_time_ns = std::min(so_far_.sampled_time_ns.value_or(time), time);
    postponed_.push_back({time, std::move(chain), *proposal.faster_than_ns});
  }
}

absl::Status Choice::AddPostponed() {
  std::stable_sort(postponed_.begin(), postponed_.end(),
                   [](const Postponed& a, const Postponed& b) { return a.sampled_time_ns < b.sampled_time_ns; });
  for (const Postponed& one : postponed_) {
    if (so_far_.cheapest && one.sampled_time_ns > so_far_.cheapest->time_ns) break;
    const absl::Status added = Add(one.chain, {.faster_than_ns = one.faster_than_ns});
    if (!added.ok() && !absl::IsInvalidArgument(added)) return added;
  }
  return absl::OkStatus();
}

absl::StatusOr<Plan> Choice::PlanWithin(const Layout& from, const Layout& to) const {
  PlanOptions options = options_;
  options.memory_limit_bytes.reset();  // judged for the whole chain
  return Choice({from, to, dtype_}, options).Make();
}

absl::Status Choice::Collect() {
  std::optional<digits::MeshLevels> levels;
  if (options_.topology.num_levels() > 1) levels = digits::LevelsOf(source_.mesh(), options_.topology);
  model_ = digits::DigitModel::Create(source_, target_, options_.boxes_only, levels ? &*levels : nullptr);
  if (!model_ && levels) model_ = digits::DigitModel::Create(source_, target_, options_.boxes_only);
  const candidates::Task task{
      .source = source_,
      .target = target_,
      .dtype = dtype_,
      .options = options_,
      .reduces = !cost::ReducedAxes(source_, target_).empty(),
      .model = model_ ? &*model_ : nullptr,
      .plan_within = [this](const Layout& from, const Layout& to) { return PlanWithin(from, to); },
      .bounds = [this] { return FindBounds(); },
      .maps = maps_};
  // Whether a sample of devices may tell which of the chains that have to be fast are worth pricing. It tells neither
  // what fits nor which ops a chain takes; with these two, every movement is allowed.
  const bool sample_tells = source_.mesh().size() > transfers::kAllLookedAt && !options_.memory_limit_bytes &&
                            options_.ops.contains(Op::kExchange) && options_.ops.contains(Op::kSlice);
  for (const candidates::Family& family : candidates::Families()) {
    candidates::Proposal proposal = family.propose(task, so_far_);
    if (proposal.faster_than_ns && sample_tells) {
      Postpone(std::move(proposal));
      continue;
    }
    for (const candidates::Chain& chain : proposal.chains) {
      absl::Status added = Add(chain, proposal);
      if (!added.ok() && (family.always_legal || !absl::IsInvalidArgument(added))) return added;
    }
    if (proposal.search) search_ = std::move(proposal.search);
  }
  return AddPostponed();
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
  ASSIGN_OR_RETURN(auto same, Equivalent(source_, target_));
  if (!same) return std::nullopt;
  Plan plan = Empty();
  plan.totals.intermediate_bytes_max = plan.totals.peak_bytes = source_.MaxLocalElements() * SizeOf(dtype_);
  plan.totals.levels.resize(options_.topology.levels.size());
  plan.bounds.intermediate_bytes_max = plan.totals.intermediate_bytes_max;
  plan.certificate = {Certificate::Kind::kLowerBound, "source and target are equivalent; nothing to do"};
  if (options_.memory_limit_bytes && plan.totals.peak_bytes > *options_.memory_limit_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the memory limit of ", ExactBytes(*options_.memory_limit_bytes),
                                                     " a device is too small: at least ",
                                                     ExactBytes(plan.totals.peak_bytes), " are needed"));
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
  // receive the same, or are about as fast as the fastest, the one with the fewest crossing bytes goes first.
  const cost::Cost fastest = key(out[0]);
  const auto near = [&](size_t i) {
    const cost::Cost cost = key(i);
    if (options_.objective == Objective::kTime) return cost.objective - fastest.objective <= fastest.objective / 8;
    return cost.MovesAsMuchAs(fastest);
  };
  auto best = out.begin();
  for (auto it = out.begin(); it != out.end(); ++it) {
    const auto crossing = [&](size_t i) { return candidates::CrossingBytes(candidates_[i].chain); };
    if (near(*it) && crossing(*it) < crossing(*best)) best = it;
  }
  std::rotate(out.begin(), best, best + 1);
  return out;
}

Plan Choice::Certified(const Candidate& candidate, const Bounds& bounds) const {
  Plan plan = Empty();
  plan.bounds = bounds;
  plan.steps = candidate.chain.steps;
  plan.chunks = candidate.chain.chunks;
  plan.totals = candidate.chain.totals;
  Certify(candidate, plan);
  return plan;
}

absl::StatusOr<Plan> Choice::Make() {
  RETURN_IF_ERROR(Validate());
  ASSIGN_OR_RETURN(auto nothing, NothingToDo());
  if (nothing) return *std::move(nothing);
  RETURN_IF_ERROR(Collect());
  const std::vector<size_t> ranked = Ranked();
  if (ranked.empty()) return NothingFits();
  ASSIGN_OR_RETURN(const Bounds bounds, FindBounds());
  Plan plan = Certified(candidates_[ranked[0]], bounds);
  AddAlternatives(ranked[0], plan);
  return plan;
}

absl::StatusOr<std::vector<Plan>> Choice::MakeAll() {
  ASSIGN_OR_RETURN(auto best, Make());
  std::vector<Plan> out{std::move(best)};
  for (size_t i : Ranked()) {
    Plan plan = Certified(candidates_[i], out[0].bounds);
    const auto same = [&](const Plan& other) { return SameSteps(plan.steps, other.steps); };
    if (std::none_of(out.begin(), out.end(), same)) out.push_back(std::move(plan));
  }
  return out;
}

}  // namespace reshard::choice
