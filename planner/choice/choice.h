// One planning problem: collects every plan worth considering, chooses the cheapest, and says why.
#ifndef RESHARD_PLANNER_CHOICE_CHOICE_H_
#define RESHARD_PLANNER_CHOICE_CHOICE_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/candidates/family.h"
#include "planner/cost/price.h"
#include "planner/digits/digit_model.h"
#include "reshard/planner/plan.h"
#include "reshard/planner/problem.h"

namespace reshard::choice {

// The same ops through the same layouts.
bool SameSteps(const std::vector<Step>& a, const std::vector<Step>& b);

struct Candidate {
  cost::PricedChain chain;
  bool searched = false;  // from the exact search
};

struct Postponed {
  int64_t sampled_time_ns = 0;  // by cost::TimeAtLeast
  candidates::Chain chain;
  int64_t faster_than_ns = 0;
};

// State: the problem and every candidate priced so far. Invariant: candidates are legal chains of allowed ops from
// source to target; whether they fit the memory limit is decided when one is chosen.
class Choice {
 public:
  Choice(const Problem& problem, const PlanOptions& options)
      : source_(problem.source),
        target_(problem.target),
        dtype_(problem.dtype),
        options_(options),
        maps_({problem.source, problem.target}) {
    if (options_.boxes_only) options_.ops = options_.ops.without(Op::kExchange);
  }
  absl::StatusOr<Plan> Make();
  absl::StatusOr<std::vector<Plan>> MakeAll();

 private:
  // A plan with everything but its steps.
  Plan Empty() const;
  // The candidate as a plan, without alternatives.
  Plan Certified(const Candidate& candidate, const Bounds& bounds) const;
  // A plan without steps if source and target are equivalent.
  absl::StatusOr<std::optional<Plan>> NothingToDo() const;
  // The candidates that fit, best first.
  std::vector<size_t> Ranked() const;
  absl::Status Validate() const;
  // Asks all families.
  absl::Status Collect();
  absl::StatusOr<Plan> PlanWithin(const Layout& from, const Layout& to) const;
  // Adds a chain of the proposal if its ops are allowed and it is as fast as the proposal asks for. A step whose
  // pattern is a named op that is not allowed stays an Exchange if that is allowed.
  absl::Status Add(const candidates::Chain& chain, const candidates::Proposal& proposal);
  // Chains that have to be fast wait until all families have been asked, if a sample says that they may be.
  void Postpone(candidates::Proposal proposal);
  // Adds those that wait, the fastest by the sample first, as long as they may be faster than what has been found.
  absl::Status AddPostponed();
  bool Allowed(cost::PricedChain& chain) const;
  bool FitsMemory(const cost::PricedChain& chain) const {
    return !options_.memory_limit_bytes || chain.smallest_peak_bytes <= *options_.memory_limit_bytes;
  }
  cost::Cost KeyOf(const cost::PricedChain& chain) const;

  // What the plan says about the choice; in verdict.cc.
  absl::StatusOr<Bounds> FindBounds();
  absl::Status NothingFits() const;
  void Certify(const Candidate& best, Plan& plan) const;
  void AddAlternatives(size_t best, Plan& plan);
  Alternative Describe(const cost::PricedChain& chain, const Plan& plan) const;

  const Layout source_;
  const Layout target_;
  const DType dtype_;
  PlanOptions options_;
  transfers::ShardMaps maps_;
  std::optional<Totals> single_step_;  // of the direct move, allowed or not; only without a reduction
  candidates::SoFar so_far_;           // of candidates_
  std::optional<digits::DigitModel> model_;
  std::vector<Candidate> candidates_;
  std::vector<Postponed> postponed_;
  std::optional<Bounds> bounds_;  // once they are found
  std::optional<sequence::SequenceResult> search_;
};

}  // namespace reshard::choice

#endif  // RESHARD_PLANNER_CHOICE_CHOICE_H_
