// What one step of a sequence costs, from the digits that it moves.
//
// A collective over a group of n devices of which n(L) share an island of level L has n(L) - n(L - 1) peers across
// level L, and as many equal parts of its bytes cross it. Levels work side by side: the slowest decides the time.
#ifndef RESHARD_PLANNER_SEARCH_MOVE_COST_H_
#define RESHARD_PLANNER_SEARCH_MOVE_COST_H_

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "planner/search/digit_model.h"
#include "planner/search/price.h"
#include "reshard/planner/plan.h"

namespace reshard::search {

enum class Move : uint8_t { kNone, kSlice, kAllGather, kAllToAll, kAllPermute, kReduceScatter, kAllReduce, kExchange };

// Digits along which a collective runs: the product of their sizes, by level (see MoveCost::rank_of_digit).
struct Group {
  Group() { size_of_rank.fill(1); }
  int64_t size = 1;
  std::array<int64_t, kMaxSearchDigits> size_of_rank;
};

class MoveCost {
 public:
  MoveCost(const DigitModel& model, DType dtype, const PlanOptions& options);

  // The levels that the model's digits cross, innermost first, are numbered from 0.
  int num_ranks() const { return static_cast<int>(levels_.size()); }
  int rank_of_digit(int e) const { return rank_of_digit_[static_cast<size_t>(e)]; }

  // A collective of `group` whose devices hold `before` and then `after` elements.
  Cost Collective(Move move, int64_t before, int64_t after, const Group& group) const;
  // Shards of `local` elements change hands; `moved` devices get another one, the farthest across `rank`.
  Cost Permute(int64_t local, int64_t moved, int rank) const;
  // Every device gets at most `max` elements of `total` from at most `peers` devices, across all levels.
  Cost Exchange(int64_t max, int64_t total, int64_t peers) const;

  // A lower bound of the cost of steps in which the worst device receives at least `lacks[r]` elements across rank r or
  // a farther one (entry 0: in all), `total` arrive in all, and elements of `shards` shards come together.
  Cost AtLeast(const std::array<int64_t, kMaxSearchDigits>& lacks, int64_t total, int64_t shards) const;

 private:
  Cost Total(int64_t recv_max, int64_t recv_total, int64_t time, int64_t far_bytes, int64_t near_bytes) const;
  int64_t OverLevel(int level, size_t rank, int64_t bytes) const;
  int64_t LeastLatency(int64_t shards) const;

  const PlanOptions& options_;
  const int64_t element_;
  const int64_t devices_;
  std::vector<int> levels_;
  std::vector<int> rank_of_digit_;
  int64_t min_latency_ = 0;
  __int128 bandwidth_ = 0;  // of all levels together
  mutable std::vector<std::pair<int64_t, int64_t>> known_latency_;
};

}  // namespace reshard::search

#endif  // RESHARD_PLANNER_SEARCH_MOVE_COST_H_
