// The cost by which plans are compared.
#ifndef RESHARD_PLANNER_COST_COST_H_
#define RESHARD_PLANNER_COST_COST_H_

#include <compare>
#include <cstdint>
#include <tuple>

namespace reshard::cost {

// The cost of a step, or the sum over the steps of a chain. Compared field by field: first what the objective asks for,
// then everything else, the most visible to users first. Bytes are those of the worst device unless stated otherwise.
struct Cost {
  int64_t objective = 0;  // nanoseconds, bytes or steps
  // Through the busiest link of the outermost level (all its links, where a slot table makes shards overlap), and
  // through the busiest one of the level inside it; 0 unless the objective is bytes and the topology has several
  // levels.
  int64_t far_bytes = 0;
  int64_t near_bytes = 0;
  int64_t recv_bytes_max = 0;
  int64_t recv_bytes_total = 0;  // over all devices
  int64_t time_ns = 0;
  int64_t steps = 0;

  auto operator<=>(const Cost&) const = default;  // NOLINT(modernize-use-nullptr): taken for a 0

  Cost& operator+=(const Cost& other) {
    objective += other.objective;
    far_bytes += other.far_bytes;
    near_bytes += other.near_bytes;
    recv_bytes_max += other.recv_bytes_max;
    recv_bytes_total += other.recv_bytes_total;
    time_ns += other.time_ns;
    steps += other.steps;
    return *this;
  }
  friend Cost operator+(Cost a, const Cost& b) { return a += b; }

  // Whether all fields before the time are equal.
  bool MovesAsMuchAs(const Cost& other) const {
    return std::tie(objective, far_bytes, near_bytes, recv_bytes_max, recv_bytes_total) ==
           std::tie(other.objective, other.far_bytes, other.near_bytes, other.recv_bytes_max, other.recv_bytes_total);
  }
};

}  // namespace reshard::cost

#endif  // RESHARD_PLANNER_COST_COST_H_
