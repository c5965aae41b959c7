// What a family of candidates is: a function from a planning problem to chains of layouts worth pricing.
//
// A family proposes, it does not judge: chains are priced, held against the allowed ops and the memory limit, and
// ranked by choice/. All families stand in one table, families.cc; a new one is a file of its own here and a line
// there.
#ifndef RESHARD_PLANNER_CANDIDATES_FAMILY_H_
#define RESHARD_PLANNER_CANDIDATES_FAMILY_H_

#include <functional>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "planner/candidates/sequence/sequence.h"
#include "planner/cost/price.h"
#include "planner/digits/digit_model.h"
#include "planner/transfers/shard_maps.h"
#include "reshard/planner/plan.h"

namespace reshard::candidates {

// source -> steps[0].to -> steps[1].to -> ... -> target.
using Chain = std::vector<cost::ChainStep>;

// source -> each of `layouts` in turn, without the moves that change nothing.
Chain Through(const Layout& source, std::initializer_list<const Layout*> layouts);

// The best plan between two layouts over one mesh: families build on plans without knowing their origin.
using PlanWithin = std::function<absl::StatusOr<Plan>(const Layout& from, const Layout& to)>;

// One planning problem, as families see it.
struct Task {
  const Layout& source;
  const Layout& target;
  DType dtype;
  const PlanOptions& options;
  // Something of the source is partial and not in the target.
  bool reduces = false;
  // Null where the pair does not fit the model.
  const digits::DigitModel* model = nullptr;
  PlanWithin plan_within;
  // The lower bounds of the pair, which are found when they are first asked for.
  std::function<absl::StatusOr<Bounds>()> bounds;
  // Of layouts that families and prices look at again and again.
  transfers::ShardMaps& maps;
};

// What the families before it in the table have found.
struct SoFar {
  std::optional<cost::Cost> cheapest;  // of the candidates that fit the memory limit
  bool single_step = false;            // the direct move is allowed and fits
  // Least bytes of any candidate, whether it fits or not, through the busiest link of the outermost level, where the
  // topology has several.
  std::optional<int64_t> least_across;
};

struct Proposal {
  std::vector<Chain> chains = {};
  std::optional<sequence::SequenceResult> search =
      std::nullopt;  // of the family that searches: how far it came, for the certificate
  // Chains that take longer are not candidates.
  std::optional<int64_t> faster_than_ns = std::nullopt;
};

struct Family {
  std::string_view name;
  Proposal (*propose)(const Task& task, const SoFar& so_far);
  // Whether a chain that turns out not to be legal is an error of the planner, or merely no candidate.
  bool always_legal = false;
};

// In the order in which they are asked.
absl::Span<const Family> Families();

}  // namespace reshard::candidates

#endif  // RESHARD_PLANNER_CANDIDATES_FAMILY_H_
