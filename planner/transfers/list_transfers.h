// TransferSchedule as an explicit list of pieces: between meshes, and within one mesh if the formula of MeshTransfers
// does not apply or would overload a sender. The receivers of a source shard, in target order, are served by its
// holders in turn; if pieces differ in size, each is sent by the least loaded holder, so that no holder sends more than
// the even share plus one piece. On a topology with levels the nearest holders come first and, among equally near ones
// that have not yet sent their even share, the one in the receiver's place of its domain.
#ifndef RESHARD_PLANNER_TRANSFERS_LIST_TRANSFERS_H_
#define RESHARD_PLANNER_TRANSFERS_LIST_TRANSFERS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/digits/digits.h"
#include "planner/transfers/overlap.h"
#include "reshard/planner/traffic.h"

namespace reshard::transfers {

// One layout's side: its mesh and, per dimension, the table and the row of each position.
struct Side {
  const Mesh* mesh = nullptr;
  std::vector<const DimShards*> dims;  // real dimensions, then retained partial axes
};

class ListTransfers final : public TransferSchedule {
 public:
  // `refinement` (same mesh only) lets Axes() return parts of axes; without it they are whole axes.
  // ResourceExhausted above 2^24 pieces.
  static absl::StatusOr<std::unique_ptr<ListTransfers>> Create(const Side& from, const Side& to, int rank,
                                                               const digits::Refinement* refinement,
                                                               const Topology& topology, int64_t first_holder);

  std::vector<Message> Receives(int64_t device) const override;
  std::vector<Message> Sends(int64_t device) const override;
  TransferFigures Figures() const override { return figures_; }
  std::vector<int64_t> Devices() const override { return devices_; }
  DeviceLoad Load(int64_t index) const override { return loads_[index]; }
  Op Classify() const override { return op_; }
  std::vector<AxisRef> Axes() const override { return axes_; }
  int64_t GroupSize() const override { return group_size_; }

 private:
  struct BoxTransfer {
    int32_t sender;  // indices into devices_
    int32_t receiver;
    int64_t first_pair;  // into pair_refs_: one pair index per dimension
    int64_t elements;
  };

  ListTransfers() = default;
  Message MakeMessage(const BoxTransfer& piece) const;
  // Chooses the holders that serve the receivers of one shard.
  class Turn;
  void Count(const Topology& topology);
  void Classify(const Side& from, const Side& to);

  std::vector<int64_t> devices_;
  int rank_ = 0;
  bool same_mesh_ = false;
  std::vector<DimOverlap> overlaps_;
  std::vector<BoxTransfer> pieces_;  // by receiver, then sender
  std::vector<int32_t> pair_refs_;
  std::vector<int64_t> first_of_receiver_;
  std::vector<int32_t> by_sender_;
  std::vector<int64_t> first_of_sender_;
  std::vector<DeviceLoad> loads_;
  TransferFigures figures_;
  Op op_ = Op::kExchange;
  std::vector<AxisRef> axes_;
  int64_t group_size_ = 1;
};

}  // namespace reshard::transfers

#endif  // RESHARD_PLANNER_TRANSFERS_LIST_TRANSFERS_H_
