// TransferSchedule where a slot table cuts a dimension on either side: shards overlap there, so that a sender is chosen
// per index, not per shard. A device keeps what it holds; every other index comes from a holder at the nearest level,
// and among these the loads at that level are as even as whole indices allow (AssignSenders).
#ifndef RESHARD_PLANNER_TRANSFERS_SLOT_TRANSFERS_H_
#define RESHARD_PLANNER_TRANSFERS_SLOT_TRANSFERS_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/transfers/overlap.h"
#include "planner/transfers/piece_list.h"
#include "reshard/planner/traffic.h"

namespace reshard::transfers {

// The dimension that a slot table cuts in either layout, if any. Unimplemented where tables cut different dimensions,
// and with partial values.
absl::StatusOr<std::optional<int>> SlotDim(const Layout& from, const Layout& to);

class SlotTransfers final : public PieceList {
 public:
  // `slot_dim`: the dimension that a table cuts; the rows of the others are disjoint. The senders of equal load take
  // turns, from holder number `first_holder` on.
  // InvalidArgument if a device would get an index for two slots of its own: it has to get it once and copy it in a
  // separate step. ResourceExhausted above 2^24 pairs of an index and a holder.
  static absl::StatusOr<std::unique_ptr<SlotTransfers>> Create(const Side& from, const Side& to, int slot_dim,
                                                               const Topology& topology, int64_t first_holder,
                                                               Asked asked);

  Op Classify() const override { return figures_.recv_total == 0 && ends_.same_mesh ? Op::kSlice : Op::kExchange; }

 private:
  // Along the table's dimension.
  struct SlotRuns {
    int64_t first = 0;  // into runs_
    int64_t count = 0;
    Spread in_from = Spread::kWhole, in_to = Spread::kWhole;
    int64_t indices = 0;
  };
  class Builder;

  SlotTransfers() = default;
  Message MakeMessage(const BoxTransfer& piece) const override;
  InOnePart Contiguous(const BoxTransfer& piece) const override;

  size_t slot_dim_ = 0;
  std::vector<DimOverlap> overlaps_;  // that of the table's dimension is empty
  // Of a piece, from first_pair on: one pair index per dimension; that of the table's dimension is one of slot_runs_.
  std::vector<int32_t> pair_refs_;
  std::vector<SlotRuns> slot_runs_;
  std::vector<Run> runs_;
};

}  // namespace reshard::transfers

#endif  // RESHARD_PLANNER_TRANSFERS_SLOT_TRANSFERS_H_
