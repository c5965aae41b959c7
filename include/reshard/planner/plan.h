// A plan: the steps from a source layout to a target layout, their costs, the lower bounds, and why it was chosen.
// A plan is symbolic: its size does not grow with the number of devices. See traffic.h for the transfers of a step.
#ifndef RESHARD_PLANNER_PLAN_H_
#define RESHARD_PLANNER_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"
#include "reshard/planner/chunks.h"
#include "reshard/planner/topology.h"

namespace reshard {

// One collective operation. On the right, the bytes that a device receives: V is the size of its fragment before the
// step and n the size of its group.
enum class Op {
  kSlice,          // each device keeps a part of its fragment                0
  kAllGather,      // a group pools its shards, which do not overlap          V(n-1)
  kAllToAll,       // every member gets exactly V/n from every member         V(n-1)/n
  kAllPermute,     // whole shards change places, and keep their shapes       V where the shard changes
  kReduceScatter,  // reduces over partial axes; each member keeps a part     (n-1)|to|
  kAllReduce,      // reduces over partial axes; every member keeps it all    2V(n-1)/n
  kExchange,       // every device gets exactly what it lacks                 |to minus from|
};
inline constexpr int kNumOps = static_cast<int>(Op::kExchange) + 1;  // number of enumerators of Op
std::string_view Name(Op op);                                        // "Slice", "AllGather", ...
std::optional<Op> ParseOp(std::string_view name);                    // the op with exactly that name, or nullopt
// Whether its transfers are contributions to be combined, not elements that move.
inline bool Reduces(Op op) { return op == Op::kReduceScatter || op == Op::kAllReduce; }

// A set of operations; a value type.
class OpSet {
 public:
  // Every operation.
  static OpSet All() { return OpSet((1u << kNumOps) - 1); }
  // The empty set.
  static OpSet None() { return OpSet(0); }
  // Whether `op` is in the set.
  bool contains(Op op) const { return (bits_ >> static_cast<int>(op)) & 1u; }
  // The set with `op` added.
  OpSet with(Op op) const { return OpSet(bits_ | (1u << static_cast<int>(op))); }
  // The set with `op` removed.
  OpSet without(Op op) const { return OpSet(bits_ & ~(1u << static_cast<int>(op))); }
  bool operator==(const OpSet&) const = default;
  // Bit i is set if the set contains Op(i).
  unsigned bits() const { return bits_; }

 private:
  explicit OpSet(unsigned bits) : bits_(bits) {}
  unsigned bits_;
};

// What a plan minimizes first: the estimated time; the bytes, first those over the slowest links if the topology has
// several levels, then those that the worst device receives; or the number of steps.
enum class Objective { kTime, kBytes, kSteps };
std::string_view Name(Objective objective);  // "time", "bytes", "steps"
// The objective with that name, or nullopt if there is none.
std::optional<Objective> ParseObjective(std::string_view name);

// What a plan may use, and what it is chosen for.
struct PlanOptions {
  Objective objective = Objective::kTime;  // what to minimize
  OpSet ops = OpSet::All();                // the operations that steps may use
  // If true, intermediate layouts must be contiguous boxes, as in Shardy's resharding pass, and Exchange is not used.
  bool boxes_only = false;
  // Upper limit on Totals::peak_bytes, in bytes per device.
  std::optional<int64_t> memory_limit_bytes;
  // Bandwidths and latencies that the time estimates use.
  Topology topology = Topology::Flat();
  // Whether the steps of a plan may run at the same time, on different chunks of the tensor: see chunks.h.
  bool overlap = true;
};

// What crosses the links of one level of the topology (see topology.h), in bytes.
struct LevelFigures {
  int64_t recv_bytes_max = 0;    // received by one device
  int64_t send_bytes_max = 0;    // sent by one device
  int64_t recv_bytes_total = 0;  // received by all devices together
  // Through the busiest link, in the busier direction. A link that devices share counts as if all of them were as busy
  // as the busiest one.
  int64_t nic_bytes_max = 0;
  int64_t peers_max = 0;  // in one step: most devices across this level that one device sends to or receives from
  bool operator==(const LevelFigures&) const = default;
};

// One step. It is legal by itself: from, to, op and axes can be checked without the planner. All sizes in bytes.
struct Step {
  Op op = Op::kExchange;         // how the data moves
  Layout from;                   // before the step
  Layout to;                     // after the step
  std::vector<AxisRef> axes;     // of from's mesh: the fewest axes along which all data moves; empty across meshes
  int64_t group_size = 1;        // product of the sizes of `axes`; across meshes, the number of devices that take part
  int64_t recv_bytes_max = 0;    // received by one device, from others
  int64_t recv_bytes_total = 0;  // received by all devices together
  int64_t send_bytes_max = 0;    // sent by one device, to others
  int64_t local_bytes_before_max = 0;  // of the largest fragment under `from`
  int64_t local_bytes_after_max = 0;   // of the largest fragment under `to`
  int64_t peers_max = 0;               // most distinct devices that one device sends to or receives from
  int64_t rounds = 1;                  // > 1: split so that the staging of one round fits the memory limit
  int64_t time_ns = 0;                 // estimate, as in topology.h
  // Between meshes the holders of a shard serve its receivers in turn; this is the holder that begins. A batch uses it
  // to spread the sending of many small tensors.
  int64_t first_holder = 0;
  std::vector<LevelFigures> levels;  // one per level of the topology, innermost first

  // True if source and target meshes differ.
  bool crosses_meshes() const { return !(from.mesh() == to.mesh()); }
};

// The figures of a whole plan. All sizes in bytes.
struct Totals {
  int64_t recv_bytes_max = 0;          // largest over devices of the sum over steps
  int64_t recv_bytes_total = 0;        // over devices and steps
  int64_t intermediate_bytes_max = 0;  // of the largest fragment of any layout of the plan, both ends included
  // Largest over devices and steps: the source + the step's input (unless that is the source) + its output + staging.
  // In chunks: source + target + two chunks of everything between + a chunk of all that is sent and received.
  int64_t peak_bytes = 0;
  int64_t time_ns = 0;  // estimate: the sum over steps; in chunks, over turns
  // One per level of the topology: largest over devices of the sum over steps; peers_max is that of the worst step.
  std::vector<LevelFigures> levels;
};

// What has to cross a level whatever the algorithm, in bytes: a domain of the next level in must receive everything
// that its devices need and none of them holds (with partial values, its share of the transmissions between domains),
// and domains that hold the same must send, between them, everything that only they hold and another one needs.
struct LevelBound {
  int64_t island_recv_bytes_max = 0;  // by one domain of the next level in (on the innermost level, by one device)
  int64_t nic_recv_bytes_max = 0;     // by one link, if the links of a domain share that evenly
  int64_t nic_bytes_max = 0;          // received or sent by one link, likewise
  int64_t recv_bytes_total = 0;       // by all domains together
  bool operator==(const LevelBound&) const = default;
};

// Lower bounds that hold for every algorithm. All sizes in bytes.
struct Bounds {
  int64_t recv_bytes_max = 0;          // received by the worst device
  int64_t recv_bytes_total = 0;        // received by all devices together
  int64_t intermediate_bytes_max = 0;  // of the largest fragment of source and target
  // One per level, counting what crosses this level or one further out. Empty if the topology has one level, or if its
  // domains are not sub-meshes of the meshes.
  std::vector<LevelBound> levels;
};

// How good a plan is known to be.
struct Certificate {
  // The plan meets the lower bound; an exhaustive search of its kind of plan found nothing cheaper; neither.
  enum class Kind { kLowerBound, kExhaustive, kBestFound };
  Kind kind = Kind::kBestFound;  // the strongest of these that holds
  std::string detail;            // what was compared with what; a sentence
};
std::string_view Name(Certificate::Kind kind);  // "lower_bound", "exhaustive", "best_found"

// A plan that competed and lost.
struct Alternative {
  std::vector<Step> steps;       // in order
  Chunks chunks;                 // sent through the steps
  Totals totals;                 // over all steps
  std::string rejected_because;  // why it lost; a sentence
};

// A plan and everything that is known about it.
struct Plan {
  Layout source;                          // before the first step
  Layout target;                          // after the last step
  DType dtype = DType::kBF16;             // of the elements
  PlanOptions options;                    // used to make the plan
  std::vector<Step> steps;                // in order; empty if source and target are equivalent
  Chunks chunks;                          // sent through the steps one behind the other
  Totals totals;                          // over all steps
  Bounds bounds;                          // that no plan between these layouts can beat
  Certificate certificate;                // how near the plan is known to be to the best one
  std::vector<Alternative> alternatives;  // other plans, and why they lost

  // The highest device id in either mesh plus one.
  int64_t world() const { return std::max(source.mesh().world(), target.mesh().world()); }
};

}  // namespace reshard

#endif  // RESHARD_PLANNER_PLAN_H_
