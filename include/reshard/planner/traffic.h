// Who sends what to whom in one step. The same object prices a step, prints its pieces and lowers it to a program.
//
// Every device keeps what it already holds (a copy to itself) and gets every other element of its target fragment from
// exactly one holder. The sender agrees with the receiver on every mesh digit that the source layout does not use. If
// the target puts such a digit where the source has a different one, its value is instead the receiver's value of that
// other digit, so that a swap of axes becomes a permutation (on a topology with levels only if that leads to no farther
// holder). Where this would leave a sender with more than its even share plus one piece, and between meshes, the
// receivers of a source shard are spread over its holders: the nearest first, then the least loaded.
#ifndef RESHARD_PLANNER_TRAFFIC_H_
#define RESHARD_PLANNER_TRAFFIC_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"
#include "reshard/planner/plan.h"

namespace reshard {

// A run of consecutive indices along one dimension: where it starts in the sender's fragment, in the receiver's
// fragment and in the tensor. All in elements along that dimension.
struct Run {
  int64_t from = 0;    // first index in the sender's fragment
  int64_t to = 0;      // first index in the receiver's fragment
  int64_t global = 0;  // first index in the tensor
  int64_t length = 0;  // number of indices
  bool operator==(const Run&) const = default;
};

// One message: the product over dimensions of the runs (a 0-d tensor has no dimensions and one element).
// Messages are never empty. One with sender == receiver is the copy of what a device keeps.
struct Message {
  int64_t sender = 0;                  // device id
  int64_t receiver = 0;                // device id
  std::vector<std::vector<Run>> runs;  // one list per dimension, ascending
  // Product over dimensions of the total length of the runs; at least 1.
  int64_t elements() const;
  bool operator==(const Message&) const = default;
};

// Figures of one step, in elements. What a device keeps does not count.
struct TransferFigures {
  int64_t recv_max = 0;        // received by one device
  int64_t recv_total = 0;      // received by all devices together
  int64_t send_max = 0;        // sent by one device
  int64_t peers_max = 0;       // devices that one device sends to or receives from, whichever is more
  int64_t messages_total = 0;  // messages between different devices
};

// The part of a device's load that crosses one level of the topology, in elements.
struct LevelLoad {
  int64_t recv = 0;   // received from others
  int64_t send = 0;   // sent to others
  int64_t peers = 0;  // devices that it sends to or receives from, whichever is more
};

// One per level of the topology. Most topologies have two, so two are stored inline, without an allocation per device.
using LevelLoads = absl::InlinedVector<LevelLoad, 2>;

// What one device does in one step, in elements. Staging counts what is not contiguous in the local fragment.
struct DeviceLoad {
  int64_t before = 0;            // size of its fragment under `from`
  int64_t after = 0;             // size of its fragment under `to`
  int64_t recv = 0;              // received from others
  int64_t send = 0;              // sent to others
  int64_t staging = 0;           // packed before sending plus unpacked after receiving
  int64_t staging_messages = 0;  // number of messages that the staged elements belong to
  LevelLoads levels;             // empty if the topology has only one
};

namespace digits {
struct DigitLink;
}

// All messages of one step, in enumerated or in closed form. Immutable.
class MessageSchedule {
 public:
  virtual ~MessageSchedule() = default;

  // The messages to `device`, by ascending sender, the copy of what it keeps included. Empty if it is in neither mesh.
  virtual std::vector<Message> Receives(int64_t device) const = 0;
  // The messages from `device`, by ascending receiver, the copy of what it keeps included.
  virtual std::vector<Message> Sends(int64_t device) const = 0;
};

// The messages, plus what the planner needs to know about them as a whole.
class TransferSchedule : public MessageSchedule {
 public:
  // The transfers of op from -> to. For kReduceScatter and kAllReduce each message is one member's contribution to the
  // receiver's target fragment, to be combined with the receiver's own. An AllReduce lists the contribution of every
  // member to the whole fragment; AllReduceChunk says which member reduces what, and the figures count that.
  // `topology` decides which holders are near, except in an AllPermute that the nearest holders would not form;
  // `first_holder`: see Step.
  // InvalidArgument if shapes or reductions do not fit the op. Unimplemented if `to` is partial over an axis over which
  // `from` is not.
  static absl::StatusOr<std::unique_ptr<TransferSchedule>> Create(Op op, const Layout& from, const Layout& to,
                                                                  const Topology& topology = Topology::Flat(),
                                                                  int64_t first_holder = 0);
  // The transfers of one step of a plan.
  static absl::StatusOr<std::unique_ptr<TransferSchedule>> Create(const Step& step, const Topology& topology) {
    return Create(step.op, step.from, step.to, topology, step.first_holder);
  }

  // The figures of the whole step.
  virtual TransferFigures Figures() const = 0;
  // The device ids that take part: those of the mesh, by position; across meshes those of `from`, then those only in
  // `to`.
  virtual std::vector<int64_t> Devices() const = 0;
  // The load of the device at `index` of Devices().
  virtual DeviceLoad Load(int64_t index) const = 0;
  // The load of every device, in the order of Devices().
  std::vector<DeviceLoad> Loads() const;
  // For the planner: pairs of digits of the mesh such that the load of a device depends only on which pairs have equal
  // coordinates there. Null if any device may differ from any other.
  virtual const std::vector<digits::DigitLink>* Links() const { return nullptr; }
  // For the planner, where there are no links: a number per device, in the order of Devices(); devices with equal
  // numbers have equal loads. Empty if any device may differ from any other.
  virtual std::vector<int32_t> Kinds() const { return {}; }
  // The most specific op whose definition this pattern meets (Slice, AllGather, AllToAll, AllPermute, else Exchange;
  // a reduction stays what it is).
  virtual Op Classify() const = 0;
  // The fewest axes along which all data moves, in mesh order; empty across meshes.
  virtual std::vector<AxisRef> Axes() const = 0;
  // Product of the sizes of these axes; across meshes, the number of devices that send or receive.
  virtual int64_t GroupSize() const = 0;
};

// The half-open range of a fragment's elements, in local row-major order, that member `index` of `group_size` reduces
// in an AllReduce: the index-th chunk of ceil(fragment_elements / group_size).
Interval AllReduceChunk(int64_t fragment_elements, int64_t group_size, int64_t index);

// The names before 0.3.
using Traffic [[deprecated("TransferSchedule")]] = TransferSchedule;
using TrafficFigures [[deprecated("TransferFigures")]] = TransferFigures;

}  // namespace reshard

#endif  // RESHARD_PLANNER_TRAFFIC_H_
