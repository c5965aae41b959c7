#include "planner/candidates/sequence/move_cost.h"

#include <algorithm>

#include "reshard/layout/checked.h"

namespace reshard::sequence {

MoveCost::MoveCost(const digits::DigitModel& model, DType dtype, const PlanOptions& options)
    : options_(options), element_(SizeOf(dtype)), devices_(model.devices()) {
  const auto& levels = options.topology.levels;
  std::vector<int> level_of_digit;
  for (int e = 0; e < model.num_digits(); ++e) {
    const digits::Digit& digit = model.refined()[e];
    int level = model.has_levels() ? digit.level : 0;
    // Without levels this is a guess, as if ids followed positions.
    while (!model.has_levels() && level + 1 < options.topology.num_levels() &&
           digit.stride * digit.size > levels[level].devices) {
      ++level;
    }
    level_of_digit.push_back(level);
  }
  levels_ = level_of_digit;
  std::sort(levels_.begin(), levels_.end());
  levels_.erase(std::unique(levels_.begin(), levels_.end()), levels_.end());
  for (int level : level_of_digit) {
    const auto at = std::lower_bound(levels_.begin(), levels_.end(), level);
    tier_of_digit_.push_back(static_cast<int>(at - levels_.begin()));
  }
  min_latency_ = levels[0].latency_ns;
  for (const auto& level : levels) {
    min_latency_ = std::min(min_latency_, level.latency_ns);
    bandwidth_ += level.bytes_per_second;
  }
}

cost::Cost MoveCost::MakeCost(int64_t recv_max, int64_t recv_total, int64_t time, int64_t far_bytes,
                              int64_t near_bytes) const {
  const bool by_level = options_.objective == Objective::kBytes && options_.topology.num_levels() > 1;
  const int64_t objective = options_.objective == Objective::kTime    ? time
                            : options_.objective == Objective::kSteps ? 1
                            : by_level                                ? far_bytes
                                                                      : recv_max * element_;
  return {
      objective, by_level ? far_bytes : 0, by_level ? near_bytes : 0, recv_max * element_, recv_total * element_, time,
      1};
}

// Returns `bytes`, which cross the level of `tier`, if that is `level`, else 0. Callers add up the bytes through a link
// of the outermost level, and of the one inside it.
int64_t MoveCost::OverLevel(int level, size_t tier, int64_t bytes) const { return levels_[tier] == level ? bytes : 0; }

cost::Cost MoveCost::Collective(Move move, int64_t before, int64_t after, const Group& group) const {
  if (move == Move::kSlice) return MakeCost(0, 0, 0, 0, 0);
  int64_t part = 0;  // from one peer
  int64_t recv = 0;
  int64_t total = 0;
  switch (move) {
    case Move::kAllGather:
      part = before;
      break;
    case Move::kAllToAll:
      part = before / group.size;
      break;
    case Move::kReduceScatter:
      part = after;
      break;
    default:  // AllReduce: a chunk to reduce and a reduced chunk
      part = 2 * CeilDiv(before, group.size);
      recv = before + (group.size - 2) * CeilDiv(before, group.size);
      total = 2 * before * (group.size - 1) * (devices_ / group.size);
  }
  if (move != Move::kAllReduce) {
    recv = part * (group.size - 1);
    total = recv * devices_;
  }
  const int last = options_.topology.num_levels() - 1;
  int64_t time = 0, far = 0, near = 0;
  int64_t inside = 1;
  for (size_t r = 0; r < levels_.size(); ++r) {
    const int64_t reached = inside * group.size_of_tier[r];
    const int64_t peers = reached - inside;
    inside = reached;
    if (peers == 0) continue;
    const int64_t bytes = std::min(peers * part, recv) * element_ * options_.topology.DevicesPerNic(levels_[r]);
    time = std::max(time, options_.topology.StepTime(levels_[r], peers, bytes));
    far += OverLevel(last, r, bytes);
    near += OverLevel(last - 1, r, bytes);
  }
  return MakeCost(recv, total, time, far, near);
}

cost::Cost MoveCost::Permute(int64_t local, int64_t moved, int tier) const {
  const int level = levels_[tier];
  const int64_t bytes = local * element_ * options_.topology.DevicesPerNic(level);
  const int last = options_.topology.num_levels() - 1;
  const auto r = static_cast<size_t>(tier);
  return MakeCost(local, local * moved, options_.topology.StepTime(level, 1, bytes), OverLevel(last, r, bytes),
                  OverLevel(last - 1, r, bytes));
}

cost::Cost MoveCost::Exchange(int64_t max, int64_t total, int64_t peers) const {
  const int level = options_.topology.num_levels() - 1;
  return MakeCost(max, total, options_.topology.StepTime(level, peers, max * element_), max * element_, 0);
}

// Returns the fewest latencies that bring the elements of `shards` shards together on one device. A step in which a
// device has p peers multiplies the number of shards by at most 1 + p. If its peers are spread over several levels, the
// level with the most has at least an even share of them.
int64_t MoveCost::LeastLatency(int64_t shards) const {
  if (shards <= 1) return 0;
  for (const auto& [known, least] : known_latency_) {
    if (known == shards) return least;
  }
  const auto spread = static_cast<int64_t>(levels_.size());
  auto one_step = [&](int64_t factor) { return 1 + CeilDiv(factor - 1, spread); };
  int64_t least = one_step(shards);
  // A larger factor is no better than two steps, by a third of it and by three.
  const int64_t most = 4 * spread + 8;
  for (int64_t factor = 2; factor < std::min(shards, most); ++factor) {
    least = std::min(least, one_step(factor) + LeastLatency(CeilDiv(shards, factor)));
  }
  known_latency_.emplace_back(shards, least);
  return least;
}

cost::Cost MoveCost::AtLeast(const std::array<int64_t, digits::kMaxSearchDigits>& missing, int64_t total,
                             int64_t shards) const {
  int64_t time = 0;
  const auto& levels = options_.topology.levels;
  // One peer costs two latencies (topology.h).
  const int64_t latency = min_latency_ * std::max<int64_t>(2, LeastLatency(shards));
  constexpr __int128 kNanoseconds = 1'000'000'000;
  if (missing[0] > 0 || shards > 1) {
    // Levels that work in parallel are at best as fast as the sum of their bandwidths.
    const __int128 bytes = static_cast<__int128>(missing[0]) * element_ * kNanoseconds;
    const auto transfer = static_cast<int64_t>((bytes + bandwidth_ - 1) / bandwidth_);
    time = std::max(latency, 2 * min_latency_ + transfer);
    if (levels.size() > 1) {
      for (size_t r = 0; r < levels_.size(); ++r) {
        if (missing[r] == 0) continue;
        // What crosses this tier or a farther one can use all of those links.
        __int128 reach = 0;
        for (size_t i = static_cast<size_t>(levels_[r]); i < levels.size(); ++i) reach += levels[i].bytes_per_second;
        const __int128 far = static_cast<__int128>(missing[r]) * element_ * kNanoseconds;
        time = std::max(time, static_cast<int64_t>((far + reach - 1) / reach));
      }
    }
  }
  // What crosses the outermost level, if some digit crosses it.
  const bool reached = !levels_.empty() && levels_.back() == options_.topology.num_levels() - 1;
  return MakeCost(missing[0], total, time, reached ? missing[levels_.size() - 1] * element_ : 0, 0);
}

}  // namespace reshard::sequence
