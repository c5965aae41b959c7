// Who sends what to whom in one step: the one object that prices a step, prints its pieces and lowers it to a program.
//
// Every device keeps what it already holds (a copy to itself) and gets every other element of its target fragment from
// exactly one holder. Who sends: a holder agrees with the receiver on every digit the source layout does not use,
// unless the target puts that digit where the source has another one; then it takes the receiver's value of that one,
// so that a swap of axes becomes a permutation (on a topology with levels only where that leads to no farther holder).
// Where this would leave a sender with more than its even share plus one piece, and between meshes, the receivers of a
// source shard take its holders in turn: the nearest first, then the least loaded.
#ifndef RESHARD_PLANNER_TRAFFIC_H_
#define RESHARD_PLANNER_TRAFFIC_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"
#include "reshard/planner/plan.h"

namespace reshard {

// A run of neighbouring elements along one dimension: where it lies in the sender's fragment, in the receiver's
// fragment, and in the tensor. All in elements of that dimension.
struct Run {
  int64_t from = 0;
  int64_t to = 0;
  int64_t global = 0;
  int64_t length = 0;
  bool operator==(const Run&) const = default;
};

// One message: the product over dimensions of the runs (a 0-d tensor has no dimensions and one element).
// Messages are never empty. `sender == receiver` is the copy of what a device keeps.
struct Message {
  int64_t sender = 0;  // device ids
  int64_t receiver = 0;
  std::vector<std::vector<Run>> runs;  // one list a dimension, ascending
  int64_t elements() const;
};

// Figures of one step in elements.
struct TrafficFigures {
  int64_t recv_max = 0;
  int64_t recv_total = 0;
  int64_t send_max = 0;
  int64_t peers_max = 0;
  int64_t messages_total = 0;  // a device's copy to itself left out
};

// The part of a device's load that crosses one level of the topology, in elements.
struct LevelLoad {
  int64_t recv = 0;
  int64_t send = 0;
  int64_t peers = 0;  // the larger of senders and receivers
};

// What one device does in one step, in elements. Staging counts what is not contiguous in the local fragment.
struct DeviceLoad {
  int64_t before = 0;  // of its fragment under `from`
  int64_t after = 0;   // of its fragment under `to`
  int64_t recv = 0;
  int64_t send = 0;
  int64_t staging = 0;            // elements packed before sending + unpacked after receiving
  int64_t staging_messages = 0;   // messages they belong to
  std::vector<LevelLoad> levels;  // one a level of the topology; empty when it has one
};

namespace search {
struct DigitLink;
}

class Traffic {
 public:
  virtual ~Traffic() = default;

  // The traffic of op from -> to. For kReduceScatter and kAllReduce each message is one member's contribution to the
  // receiver's target fragment, to be combined with the receiver's own. An AllReduce lists the contribution of every
  // member to the whole fragment; who really reduces what is AllReduceChunk, and the figures count that.
  // `topology` decides who is near; `first_holder`: see Step.
  // InvalidArgument when shapes or pending reductions do not fit the op. Unimplemented: new pending axes.
  static absl::StatusOr<std::unique_ptr<Traffic>> Create(Op op, const Layout& from, const Layout& to,
                                                         const Topology& topology = Topology::Flat(),
                                                         int64_t first_holder = 0);
  // Of a step of a plan.
  static absl::StatusOr<std::unique_ptr<Traffic>> Create(const Step& step, const Topology& topology) {
    return Create(step.op, step.from, step.to, topology, step.first_holder);
  }

  // What `device` gets, by sender ascending, its own part included. Empty when it is in neither mesh.
  virtual std::vector<Message> Receives(int64_t device) const = 0;
  // What `device` gives, by receiver ascending, its own part included.
  virtual std::vector<Message> Sends(int64_t device) const = 0;

  virtual TrafficFigures Figures() const = 0;
  // The device ids concerned: the mesh's, in position order; across meshes those of `from`, then those only in `to`.
  virtual std::vector<int64_t> Devices() const = 0;
  // The load of the device at `index` of Devices().
  virtual DeviceLoad Load(int64_t index) const = 0;
  // The load of every device, in the order of Devices().
  std::vector<DeviceLoad> Loads() const;
  // For the planner: pairs of digits of the one mesh such that the load of a device depends only on which of them have
  // equal coordinates there. Null when any device may differ from any other.
  virtual const std::vector<search::DigitLink>* Links() const { return nullptr; }
  // The most specific op whose definition this pattern meets (Slice, AllGather, AllToAll, AllPermute, else Exchange;
  // a reduction stays what it is).
  virtual Op Classify() const = 0;
  // The fewest axes outside which nothing travels, in mesh order; empty across meshes.
  virtual std::vector<AxisRef> Axes() const = 0;
  // Product of the axes' sizes; across meshes the number of devices that send or receive.
  virtual int64_t GroupSize() const = 0;
};

// The half-open range of a fragment's elements (local row-major order) that member `index` of `group_size` reduces in
// an AllReduce: ceil chunks.
Interval AllReduceChunk(int64_t fragment_elements, int64_t group_size, int64_t index);

}  // namespace reshard

#endif  // RESHARD_PLANNER_TRAFFIC_H_
