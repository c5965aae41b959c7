// One planning problem: collects every plan worth looking at, takes the cheapest, and says why.
#ifndef RESHARD_PLANNER_SEARCH_CHOICE_H_
#define RESHARD_PLANNER_SEARCH_CHOICE_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/search/digit_model.h"
#include "planner/search/price.h"
#include "planner/search/sequence.h"
#include "reshard/planner/plan.h"

namespace reshard::search {

// States the search may generate: where an Exchange is at hand it bounds the cost and the search only looks for
// something cheaper, in well under a millisecond; where it is not allowed the search is exact for up to six digits, and
// beyond that stops after some 50 ms with a bound on the gap. Counted in states, so that every machine stops alike.
inline constexpr int64_t kBudgetBesideExchange = 2000;
inline constexpr int64_t kBudgetAlone = 150'000;

// The same ops through the same layouts.
bool SameSteps(const std::vector<Step>& a, const std::vector<Step>& b);

struct Candidate {
  PricedChain chain;
  bool searched = false;  // from the exact search
};

// State: the problem and every candidate priced so far. Invariant: candidates are legal chains of allowed ops from
// source to target; whether they fit the memory limit is judged when one is chosen.
class Choice {
 public:
  Choice(const Layout& source, const Layout& target, DType dtype, const PlanOptions& options)
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
  absl::Status Add(const std::vector<Hop>& hops, bool searched);
  bool Allowed(PricedChain& chain) const;
  bool FitsMemory(const PricedChain& chain) const {
    return !options_.memory_limit_bytes || chain.smallest_peak_bytes <= *options_.memory_limit_bytes;
  }
  Cost KeyOf(const PricedChain& chain) const;

  // What is said of the choice, in verdict.cc.
  absl::Status FindBounds(Plan& plan) const;
  absl::Status NothingFits() const;
  void Certify(const Candidate& best, Plan& plan) const;
  void AddAlternatives(size_t best, Plan& plan) const;
  Alternative Describe(const PricedChain& chain, const Plan& plan) const;

  const Layout& source_;
  const Layout& target_;
  const DType dtype_;
  PlanOptions options_;
  std::optional<Totals> single_step_;  // of the direct move, allowed or not; only without a reduction
  std::optional<DigitModel> model_;
  std::vector<Candidate> candidates_;
  std::optional<SequenceResult> search_;
};

}  // namespace reshard::search

#endif  // RESHARD_PLANNER_SEARCH_CHOICE_H_
