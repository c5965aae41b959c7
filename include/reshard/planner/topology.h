// What communication costs: levels of links from the fastest domain outwards, each with a bandwidth and a latency.
//
// Two devices meet at the innermost level that has both in one domain; what they send each other crosses the links of
// that level. A device posts its messages one after another, a latency apart, and each flows while later ones are
// posted. So the time of one step is, in integer nanoseconds (no floating point: all machines agree):
//   time = max over levels of the larger of
//     2 * latency + ceil(nic_bytes_max / bandwidth)                                    until all bytes have flowed
//     latency * (1 + peers_max) + ceil(ceil(nic_bytes_max / peers_max) / bandwidth)    until the last message has
// where peers and bytes are those that cross the level: the levels work in parallel and the slowest one decides. A
// level that nothing crosses costs nothing, and neither does a Slice; any other step costs at least the innermost
// latency.
#ifndef RESHARD_PLANNER_TOPOLOGY_H_
#define RESHARD_PLANNER_TOPOLOGY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reshard {

// A network of devices. A value type; see Validate() for what makes sense.
struct Topology {
  // One level of links.
  struct Level {
    // Devices k*devices .. (k+1)*devices-1 form one domain. 0 on the outermost level: all devices are one domain.
    int64_t devices = 0;
    // Bandwidth of one link, in each direction.
    int64_t bytes_per_second = 0;
    // Latency of one message, in nanoseconds.
    int64_t latency_ns = 0;
    // Number of links to this level that a domain of the next level in has (on the innermost level, a device). 0: one
    // per device. If there are fewer, neighboring devices share them evenly.
    int64_t nics = 0;
    bool operator==(const Level&) const = default;
  };
  std::string name;           // "flat", a preset, or the file it came from
  std::vector<Level> levels;  // innermost first, at least one; the last has devices = 0

  // One level of 50 GB/s and 5 us: all devices are equally far from each other.
  static Topology Flat();
  // The topology called "flat", "dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "gb200" (racks of 72), "mi300x",
  // "pcie" or "cpu" (docs/topologies.md). NotFound, with these names, for any other.
  static absl::StatusOr<Topology> Preset(std::string_view name);
  // {"levels":[{"devices":8,"gb_per_s":400,"latency_us":3},{"gb_per_s":50,"latency_us":12,"nics":4}]}
  // `name` becomes Topology::name. InvalidArgument with the reason: not JSON, no levels, domain sizes that do not nest,
  // figures out of range.
  static absl::StatusOr<Topology> FromJson(std::string_view json, std::string_view name);

  // Makes each domain of the inner of two levels a node of `devices` devices; there are `nodes` of them. A node has no
  // more links than devices. InvalidArgument: not two levels, not at least one node of one device, too many devices.
  absl::Status SetNodes(int64_t nodes, int64_t devices);

  // InvalidArgument if a topology put together by hand makes no sense: no levels, a bandwidth that is not positive, a
  // negative latency, domains without devices, more links than devices.
  absl::Status Validate() const;

  // The level at which two device ids meet: the innermost level whose domains hold both.
  int LevelOf(int64_t device_a, int64_t device_b) const;
  // At least 1 in a valid topology.
  int num_levels() const { return static_cast<int>(levels.size()); }
  // Number of devices that share one link of `level`; at least 1.
  int64_t DevicesPerNic(int level) const;
  // One level's term of the formula above, in nanoseconds, for `nic_bytes_max` bytes through the busiest link. A step
  // of several rounds pays the latencies once per round. Without peers: one latency. A step's time is the largest term
  // of the levels that it crosses.
  int64_t StepTime(int level, int64_t peers_max, int64_t nic_bytes_max, int64_t rounds = 1) const;

  bool operator==(const Topology&) const = default;
};

}  // namespace reshard

#endif  // RESHARD_PLANNER_TOPOLOGY_H_
