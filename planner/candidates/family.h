// What a family of candidates is: a function from a planning problem to chains of layouts worth pricing.
//
// A family proposes and does not judge: choice/ prices the chains, checks them against the allowed ops and the memory
// limit, and ranks them. The table of all families is in families.cc; a new one is a file of its own here and a line
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

// Returns the best plan between two layouts over one mesh: families build on plans without knowing who makes them.
using PlanWithin = std::function<absl::StatusOr<Plan>(const Layout& from, const Layout& to)>;

// One planning problem, as families see it.
struct Task {
  const Layout& source;
  const Layout& target;
  DType dtype;
  const PlanOptions& options;
  // The source is partial over some axis over which the target is not.
  bool reduces = false;
  // Null where the pair does not fit the model.
  const digits::DigitModel* model = nullptr;
  PlanWithin plan_within;
  // The lower bounds of the pair, computed on the first call.
  std::function<absl::StatusOr<Bounds>()> bounds;
  // The shard maps of layouts that families and pricing use again and again.
  transfers::ShardMaps& maps;
};

// What the families earlier in the table have found.
struct SoFar {
  std::optional<cost::Cost> cheapest;  // of the candidates that fit the memory limit
  bool single_step = false;            // the direct move is allowed and fits
  // The fewest bytes that any candidate, whether it fits or not, sends through the busiest link of the outermost level.
  // Only on a topology with several levels.
  std::optional<int64_t> least_across;
  // About the least time of the chains that wait to be priced, by a sample of devices.
  std::optional<int64_t> sampled_time_ns;
};

struct Proposal {
  std::vector<Chain> chains = {};
  std::optional<sequence::SequenceResult> search =
      std::nullopt;  // of the family that searches: how far it got, for the certificate
  // Chains that take this long or longer are not candidates. On a large mesh they wait until all families have been
  // asked, and only those are priced that a sample of devices does not rule out.
  std::optional<int64_t> faster_than_ns = std::nullopt;
};

struct Family {
  std::string_view name;
  Proposal (*propose)(const Task& task, const SoFar& so_far);
  // Whether a chain that turns out to be illegal is an error of the planner, or merely not a candidate.
  bool always_legal = false;
};

// In the order in which the planner asks them.
absl::Span<const Family> Families();

}  // namespace reshard::candidates

#endif  // RESHARD_PLANNER_CANDIDATES_FAMILY_H_
