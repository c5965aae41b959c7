// A plan: the steps from a source layout to a target layout, what they cost, the bounds, and why this plan.
// A plan is symbolic: its size does not grow with the number of devices. See traffic.h for who sends what to whom.
#ifndef RESHARD_PLANNER_PLAN_H_
#define RESHARD_PLANNER_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"
#include "reshard/planner/topology.h"

namespace reshard {

// One collective operation (V = local bytes before, n = group size; bytes received by a device):
enum class Op {
  kSlice,          // keep a part of what is there                                   0
  kAllGather,      // groups pool their shards, which do not overlap                  V(n-1)
  kAllToAll,       // every member gets exactly V/n from every member                 V(n-1)/n
  kAllPermute,     // whole shards change hands, shapes stay                          V where it changes
  kReduceScatter,  // reduce over pending axes, each member keeps a part              (n-1)|to|
  kAllReduce,      // reduce over pending axes, every member keeps all                2V(n-1)/n
  kExchange,       // every device gets exactly what it lacks                         |to minus from|
};
inline constexpr int kNumOps = 7;
std::string_view Name(Op op);                      // "Slice", "AllGather", ...
std::optional<Op> ParseOp(std::string_view name);  // exact names

// A set of operations, one bit an Op.
class OpSet {
 public:
  static OpSet All() { return OpSet((1u << kNumOps) - 1); }
  static OpSet None() { return OpSet(0); }
  bool contains(Op op) const { return (bits_ >> static_cast<int>(op)) & 1u; }
  OpSet with(Op op) const { return OpSet(bits_ | (1u << static_cast<int>(op))); }
  OpSet without(Op op) const { return OpSet(bits_ & ~(1u << static_cast<int>(op))); }
  bool operator==(const OpSet&) const = default;
  unsigned bits() const { return bits_; }

 private:
  explicit OpSet(unsigned bits) : bits_(bits) {}
  unsigned bits_;
};

enum class Objective { kTime, kBytes, kSteps };
std::string_view Name(Objective objective);  // "time", "bytes", "steps"
std::optional<Objective> ParseObjective(std::string_view name);

struct PlanOptions {
  Objective objective = Objective::kTime;
  OpSet ops = OpSet::All();
  // Intermediate layouts must be contiguous boxes (what Shardy and the paper do), and Exchange is not used.
  bool boxes_only = false;
  // Bounds Totals::peak_bytes.
  std::optional<int64_t> memory_limit_bytes;
  Topology topology = Topology::Flat();
};

// What crosses the links of one level of the topology (see topology.h), in bytes.
struct LevelFigures {
  int64_t recv_bytes_max = 0;  // of one device
  int64_t send_bytes_max = 0;
  int64_t recv_bytes_total = 0;
  // Through the busiest link, the larger of both directions. Where devices share a link it counts as if all of them
  // were as busy as the busiest.
  int64_t nic_bytes_max = 0;
  int64_t peers_max = 0;  // of a step: most devices across this level that one device sends to or receives from
  bool operator==(const LevelFigures&) const = default;
};

// One step, legal by itself: from, to, op and axes can be checked without the planner. All sizes in bytes.
struct Step {
  Op op = Op::kExchange;
  Layout from;
  Layout to;
  std::vector<AxisRef> axes;  // of from's mesh: the fewest axes outside which nothing travels; empty across meshes
  int64_t group_size = 1;     // product of the axes' sizes; across meshes the devices that take part
  int64_t recv_bytes_max = 0;
  int64_t recv_bytes_total = 0;
  int64_t send_bytes_max = 0;
  int64_t local_bytes_before_max = 0;
  int64_t local_bytes_after_max = 0;
  int64_t peers_max = 0;  // most distinct devices that one device sends to or receives from
  int64_t rounds = 1;     // > 1: cut so that the staging of one round keeps to the memory limit
  int64_t time_ns = 0;
  // Between meshes: the holders of a shard take its receivers in turn, from the holder of this number on. A batch uses
  // it to spread the sending of many small tensors.
  int64_t first_holder = 0;
  std::vector<LevelFigures> levels;  // one a level of the topology, innermost first

  bool crosses_meshes() const { return !(from.mesh() == to.mesh()); }
};

struct Totals {
  int64_t recv_bytes_max = 0;          // over devices, of the sum over steps
  int64_t recv_bytes_total = 0;        // over devices and steps
  int64_t intermediate_bytes_max = 0;  // largest local bytes of any layout of the plan, ends included
  int64_t peak_bytes = 0;  // over devices and steps: source + input (when not the source) + output + staging
  int64_t time_ns = 0;
  // One a level: over devices, of the sum over steps; peers_max is that of the worst step.
  std::vector<LevelFigures> levels;
};

// What has to cross a level whatever the algorithm, in bytes: an island of the level inside must receive what its
// devices need and none of them holds (with pending reductions: its share of the transmissions between islands).
struct LevelBound {
  int64_t island_recv_bytes_max = 0;  // of one island of the level inside (innermost level: of one device)
  int64_t nic_recv_bytes_max = 0;     // its share of an island's links
  int64_t recv_bytes_total = 0;       // over islands
  bool operator==(const LevelBound&) const = default;
};

// What no plan can beat, whatever its algorithm.
struct Bounds {
  int64_t recv_bytes_max = 0;
  int64_t recv_bytes_total = 0;
  int64_t intermediate_bytes_max = 0;  // max(source, target) local bytes
  // One a level, counting what crosses this level or one outside it. Empty where the topology has one level, or where
  // its islands are not sub-meshes of the meshes.
  std::vector<LevelBound> levels;
};

struct Certificate {
  enum class Kind { kLowerBound, kExhaustive, kBestFound };
  Kind kind = Kind::kBestFound;
  std::string detail;
};
std::string_view Name(Certificate::Kind kind);  // "lower_bound", "exhaustive", "best_found"

struct Alternative {
  std::vector<Op> ops;
  int64_t recv_bytes_max = 0;
  int64_t intermediate_bytes_max = 0;
  int64_t time_ns = 0;
  std::string rejected_because;
};

struct Plan {
  Layout source;
  Layout target;
  DType dtype = DType::kBF16;
  PlanOptions options;
  std::vector<Step> steps;  // empty when source and target are equivalent
  Totals totals;
  Bounds bounds;
  Certificate certificate;
  std::vector<Alternative> alternatives;

  // The highest device id in either mesh + 1.
  int64_t world() const { return std::max(source.mesh().world(), target.mesh().world()); }
};

}  // namespace reshard

#endif  // RESHARD_PLANNER_PLAN_H_
