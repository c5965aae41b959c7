// What communication costs: levels of links from the fastest island outwards, each with a bandwidth and a latency.
//
// Two devices meet at the innermost level whose islands hold both; what they send each other crosses the links of that
// level. The time of one step, in integer nanoseconds (no floating point, so that every machine prints the same):
//   time = max over levels of  latency * (1 + peers_max) + ceil(nic_bytes_max / bandwidth)
// where peers and bytes are those that cross the level: levels work side by side and the slowest decides. A level that
// nothing crosses costs nothing, and neither does a Slice; any other step costs the innermost latency at least.
#ifndef RESHARD_PLANNER_TOPOLOGY_H_
#define RESHARD_PLANNER_TOPOLOGY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reshard {

struct Topology {
  struct Level {
    // Devices k*devices .. (k+1)*devices-1 are one island; 0 on the outermost level: all devices.
    int64_t devices = 0;
    int64_t bytes_per_second = 0;
    int64_t latency_ns = 0;
    // How many links of this level an island of the level inside it has (on the innermost level: a device). 0: one a
    // device. Fewer are shared by neighbouring devices, evenly; bytes_per_second is that of one link.
    int64_t nics = 0;
    bool operator==(const Level&) const = default;
  };
  std::string name;           // "flat", a preset, or the file it came from
  std::vector<Level> levels;  // innermost first, at least one; the last has devices = 0

  // 50 GB/s, 5 us, everyone equally far.
  static Topology Flat();
  // "flat", "dgx-h100", "dgx-a100", "pcie", "cpu". NotFound lists the names.
  static absl::StatusOr<Topology> Preset(std::string_view name);
  // {"levels":[{"devices":8,"gb_per_s":400,"latency_us":3},{"gb_per_s":50,"latency_us":12,"nics":4}]}
  // InvalidArgument with the reason: not JSON, no levels, sizes that do not nest, figures out of range.
  static absl::StatusOr<Topology> FromJson(std::string_view json, std::string_view name);

  // InvalidArgument where a topology put together by hand makes no sense: no levels, no positive bandwidth, a negative
  // latency, islands without devices, more links than devices.
  absl::Status Validate() const;

  // The level at which two device ids meet: the innermost level whose islands hold both.
  int LevelOf(int64_t device_a, int64_t device_b) const;
  int num_levels() const { return static_cast<int>(levels.size()); }
  // How many devices share one link of `level`; at least 1.
  int64_t DevicesPerNic(int level) const;
  // One level's term of the step time, for `nic_bytes_max` bytes through the busiest link. `rounds` > 1 pays the
  // latency once a round. A step's time is the largest term of the levels that something crosses.
  int64_t StepTime(int level, int64_t peers_max, int64_t nic_bytes_max, int64_t rounds = 1) const;

  bool operator==(const Topology&) const = default;
};

}  // namespace reshard

#endif  // RESHARD_PLANNER_TOPOLOGY_H_
