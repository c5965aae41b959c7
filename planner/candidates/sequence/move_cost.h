// Computes the cost of one step of a sequence from the digits that it moves.
//
// In a collective over a group of n devices, n(L) of which share a domain of level L, a device has n(L) - n(L - 1)
// peers across level L, and that many equal parts of its bytes cross L. Levels work in parallel: the slowest one
// decides the time.
#ifndef RESHARD_PLANNER_CANDIDATES_SEQUENCE_MOVE_COST_H_
#define RESHARD_PLANNER_CANDIDATES_SEQUENCE_MOVE_COST_H_

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "planner/cost/price.h"
#include "planner/digits/digit_model.h"
#include "reshard/planner/plan.h"

namespace reshard::sequence {

enum class Move : uint8_t { kNone, kSlice, kAllGather, kAllToAll, kAllPermute, kReduceScatter, kAllReduce, kExchange };

// Digits along which a collective runs: the product of their sizes, in total and by tier (see MoveCost::tier_of_digit).
struct Group {
  Group() { size_of_tier.fill(1); }
  int64_t size = 1;
  std::array<int64_t, digits::kMaxSearchDigits> size_of_tier;
};

class MoveCost {
 public:
  MoveCost(const digits::DigitModel& model, DType dtype, const PlanOptions& options);

  // Tiers number the levels that the model's digits cross, innermost first, from 0.
  int num_tiers() const { return static_cast<int>(levels_.size()); }
  int tier_of_digit(int e) const { return tier_of_digit_[e]; }

  // The cost of a collective in groups like `group`. A device holds `before` elements before it and `after` after it.
  cost::Cost Collective(Move move, int64_t before, int64_t after, const Group& group) const;
  // The cost of an AllPermute of shards of `local` elements: `moved` devices get a different shard, the farthest across
  // `tier`.
  cost::Cost Permute(int64_t local, int64_t moved, int tier) const;
  // The cost of an Exchange: a device receives at most `max` elements, all devices together `total`, from at most
  // `peers` devices each; priced as if all of them crossed the outermost level.
  cost::Cost Exchange(int64_t max, int64_t total, int64_t peers) const;

  // A lower bound on the cost of steps in which the worst device receives at least `missing[r]` elements across tier r
  // or a farther one (entry 0: in total), all devices together receive `total`, and a device ends up with elements of
  // `shards` shards.
  cost::Cost AtLeast(const std::array<int64_t, digits::kMaxSearchDigits>& missing, int64_t total, int64_t shards) const;

 private:
  cost::Cost MakeCost(int64_t recv_max, int64_t recv_total, int64_t time, int64_t far_bytes, int64_t near_bytes) const;
  int64_t OverLevel(int level, size_t tier, int64_t bytes) const;
  int64_t LeastLatency(int64_t shards) const;

  const PlanOptions& options_;
  const int64_t element_;
  const int64_t devices_;
  std::vector<int> levels_;
  std::vector<int> tier_of_digit_;
  int64_t min_latency_ = 0;
  __int128 bandwidth_ = 0;  // of all levels together
  mutable std::vector<std::pair<int64_t, int64_t>> known_latency_;
};

}  // namespace reshard::sequence

#endif  // RESHARD_PLANNER_CANDIDATES_SEQUENCE_MOVE_COST_H_
