// What a plan says about itself: bounds, certificate, and why the others lost.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "layout/flatten.h"
#include "planner/candidates/searched.h"
#include "planner/choice/choice.h"
#include "planner/cost/lower_bound.h"
#include "planner/cost/slot_bounds.h"
#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"
#include "reshard/planner/units.h"
#include "status/macros.h"

namespace reshard::choice {
namespace {

// Pairs with more moving digits than this do not get the best named sequence as an alternative to an Exchange.
constexpr int kAlternativeDigits = 3;

}  // namespace

absl::StatusOr<Bounds> Choice::FindBounds() {
  if (bounds_) return *bounds_;
  Bounds bounds;
  if (single_step_ && !cost::SlotDimOf(source_, target_)) {
    // Without a reduction the direct exchange receives exactly what is missing: it is the bound.
    bounds = {single_step_->recv_bytes_max, single_step_->recv_bytes_total, single_step_->intermediate_bytes_max, {}};
  } else {
    ASSIGN_OR_RETURN(bounds, cost::LowerBounds(source_, target_, dtype_));
  }
  bounds.levels = cost::LevelBounds(source_, target_, dtype_, options_.topology, bounds);
  bounds_ = bounds;
  return bounds;
}

absl::Status Choice::NothingFits() const {
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
  return absl::ResourceExhaustedError(absl::StrCat("the memory limit of ", ExactBytes(*options_.memory_limit_bytes),
                                                   " a device is too small: at least ", ExactBytes(needed),
                                                   " are needed"));
}

void Choice::Certify(const Candidate& best, Plan& plan) const {
  const int64_t bound = plan.bounds.recv_bytes_max;
  // The plan costs what the search summed up, except where maxima of steps fall on different devices, or where device
  // ids do not follow positions.
  const bool known = options_.topology.num_levels() == 1 || (model_ && model_->has_levels());
  const bool as_searched = search_ && known && model_->complete() && !options_.memory_limit_bytes &&
                           best.chain.chunks.count == 1 &&
                           best.chain.sum_of_step_maxima == plan.totals.recv_bytes_max &&
                           (!search_->found || !best.searched || KeyOf(best.chain).objective == search_->objective);
  const std::string space = options_.boxes_only ? "contiguous" : "digit-level";
  // The search does not know of chunks.
  const bool could_overlap =
      options_.overlap && options_.objective == Objective::kTime && options_.topology.num_levels() > 1;
  const std::string in_turn = could_overlap ? " whose steps run one after the other" : "";
  if (plan.totals.recv_bytes_max == bound) {
    plan.certificate = {Certificate::Kind::kLowerBound,
                        absl::StrCat("the worst device receives ", bound, " bytes; no algorithm can do with fewer")};
  } else if (as_searched && search_->exhausted) {
    plan.certificate = {Certificate::Kind::kExhaustive,
                        absl::StrCat("cheapest by ", std::string(Name(options_.objective)), " of all sequences over ",
                                     space, " layouts within max(source, target)", in_turn, "; ",
                                     plan.totals.recv_bytes_max, " bytes against a lower bound of ", bound)};
  } else {
    plan.certificate = {Certificate::Kind::kBestFound,
                        absl::StrCat("best of the plans tried; ", plan.totals.recv_bytes_max,
                                     " bytes against a lower bound of ", bound)};
    if (as_searched && search_->lower_bound > 0) {
      const int64_t above = KeyOf(best.chain).objective - search_->lower_bound;
      const auto percent =
          static_cast<int64_t>((static_cast<__int128>(above) * 100 + search_->lower_bound - 1) / search_->lower_bound);
      absl::StrAppend(&plan.certificate.detail, "; by ", std::string(Name(options_.objective)), " at most ",
                      std::max<int64_t>(percent, 0), " % above the optimum over ", space, " sequences", in_turn);
    } else if (!model_) {
      absl::StrAppend(&plan.certificate.detail, "; the pair does not fit the search over digit-level layouts");
    }
  }
  const std::vector<LevelBound>& levels = plan.bounds.levels;
  if (levels.size() < 2) return;
  const int64_t carried = plan.totals.levels.back().nic_bytes_max, least = levels.back().nic_bytes_max;
  absl::StrAppend(&plan.certificate.detail, "; between domains of ",
                  options_.topology.levels[levels.size() - 2].devices, " devices ");
  if (least == 0 && carried == 0) {
    absl::StrAppend(&plan.certificate.detail, "nothing travels");
  } else if (carried == least) {
    absl::StrAppend(&plan.certificate.detail, "a link carries ", carried, " bytes; no algorithm can do with fewer");
  } else {
    absl::StrAppend(&plan.certificate.detail, "a link carries ", carried, " bytes against a lower bound of ", least);
  }
}

Alternative Choice::Describe(const cost::PricedChain& chain, const Plan& plan) const {
  Alternative out;
  out.steps = chain.steps;
  out.chunks = chain.chunks;
  out.totals = chain.totals;
  auto times = [](int64_t more, int64_t less) {
    return less > 0 ? absl::StrFormat(" (%.2fx)", static_cast<double>(more) / static_cast<double>(less))
                    : std::string();
  };
  // Times that read alike are told apart by their difference.
  auto slower = [](int64_t more, int64_t less, const char* how, const std::string& ratio) {
    const std::string a = HumanTime(more), b = HumanTime(less);
    return a == b ? absl::StrCat(how, "by ", HumanTime(more - less), " of ", b)
                  : absl::StrCat(how, a, " against ", b, ratio);
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
        slower(chain.totals.time_ns, plan.totals.time_ns, "slower: ", times(chain.totals.time_ns, plan.totals.time_ns));
  } else if (options_.objective == Objective::kSteps && chain.steps.size() > plan.steps.size()) {
    out.rejected_because = absl::StrCat("more steps: ", chain.steps.size(), " against ", plan.steps.size());
  } else if (options_.objective == Objective::kBytes && chain.totals.levels.size() > 1 &&
             chain.totals.levels.back().nic_bytes_max > plan.totals.levels.back().nic_bytes_max) {
    const int64_t more = chain.totals.levels.back().nic_bytes_max, less = plan.totals.levels.back().nic_bytes_max;
    out.rejected_because = absl::StrCat("more over the slowest links: ", HumanBytes(more), " against ",
                                        HumanBytes(less), times(more, less));
  } else if (out.totals.recv_bytes_max > plan.totals.recv_bytes_max) {
    out.rejected_because = absl::StrCat("receives more: ", HumanBytes(out.totals.recv_bytes_max), " against ",
                                        HumanBytes(plan.totals.recv_bytes_max),
                                        times(out.totals.recv_bytes_max, plan.totals.recv_bytes_max));
  } else if (chain.totals.time_ns > plan.totals.time_ns) {
    out.rejected_because = slower(chain.totals.time_ns, plan.totals.time_ns, "as many bytes, but slower: ", "");
  } else if (chain.steps.size() > plan.steps.size()) {
    out.rejected_because =
        absl::StrCat("as many bytes and as fast, but ", chain.steps.size(), " steps against ", plan.steps.size());
  } else {
    out.rejected_because = "no better in any respect";
  }
  return out;
}

void Choice::AddAlternatives(size_t best, Plan& plan) {
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const std::vector<Step>& steps = candidates_[i].chain.steps;
    bool seen = SameSteps(steps, candidates_[best].chain.steps);  // the search and a fixed chain may agree
    for (size_t j = 0; j < i; ++j) seen |= SameSteps(steps, candidates_[j].chain.steps);
    if (!seen) plan.alternatives.push_back(Describe(candidates_[i].chain, plan));
  }
  const bool reduces = !cost::ReducedAxes(source_, target_).empty();
  // The best without an Exchange, where looking for it is cheap.
  if (!reduces && model_ && model_->num_moving() <= kAlternativeDigits && plan.steps[0].op == Op::kExchange) {
    PlanOptions named = options_;
    named.ops = named.ops.without(Op::kExchange);
    const auto found =
        sequence::SearchSequence(*model_, dtype_, named, std::nullopt, candidates::kBudgetBesideExchange);
    if (found.found) {
      const auto chain = cost::Price(source_, found.steps, dtype_, options_, maps_);
      if (chain.ok()) plan.alternatives.push_back(Describe(*chain, plan));
    }
  }
  // What most programs do today: gather everything, then cut.
  const bool slots = cost::SlotDimOf(source_, target_).has_value();  // nobody gathers all experts to move some
  if (reduces || slots || !(source_.mesh() == target_.mesh())) return;
  std::vector<DimLayout> dims;
  for (const DimLayout& dim : source_.dims()) dims.push_back(layout::Whole(dim));
  auto whole = Layout::Create(source_.mesh(), std::move(dims), source_.partial());
  if (!whole.ok()) return;
  const auto is_source = Equivalent(*whole, source_);
  const auto is_target = Equivalent(*whole, target_);
  if (!is_source.ok() || *is_source || !is_target.ok() || *is_target) return;
  const auto chain =
      cost::Price(source_, {{cost::ChainStep::Kind::kMove, *whole}, {cost::ChainStep::Kind::kMove, target_}}, dtype_,
                  options_, maps_);
  if (chain.ok()) plan.alternatives.push_back(Describe(*chain, plan));
}

}  // namespace reshard::choice
