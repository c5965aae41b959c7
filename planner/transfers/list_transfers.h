// TransferSchedule as an explicit list of pieces: between meshes, and within one mesh if the formula of MeshTransfers
// does not apply or would overload a sender. The receivers of a source shard, in target order, are served by its
// holders in turn; if pieces differ in size, each is sent by the least loaded holder, so that no holder sends more than
// the even share plus one piece. On a topology with levels the nearest holders come first and, among equally near ones
// that have not yet sent their even share, the one in the receiver's place of its domain.
#ifndef RESHARD_PLANNER_TRANSFERS_LIST_TRANSFERS_H_
#define RESHARD_PLANNER_TRANSFERS_LIST_TRANSFERS_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/digits/digits.h"
#include "planner/transfers/overlap.h"
#include "planner/transfers/piece_list.h"
#include "reshard/planner/traffic.h"

namespace reshard::transfers {

class ListTransfers final : public PieceList {
 public:
  // `refinement` (same mesh only) lets Axes() return parts of axes; without it they are whole axes.
  // `only`: with Asked::kMessages, lists the messages of this device alone. ResourceExhausted above 2^24 pieces.
  static absl::StatusOr<std::unique_ptr<ListTransfers>> Create(const Side& from, const Side& to, int rank,
                                                               const digits::Refinement* refinement,
                                                               const Topology& topology, int64_t first_holder,
                                                               Asked asked, std::optional<int64_t> only = std::nullopt);

  Op Classify() const override { return op_; }

 private:
  ListTransfers() = default;
  Message MakeMessage(const BoxTransfer& piece) const override;
  InOnePart Contiguous(const BoxTransfer& piece) const override;
  // Chooses the holders that serve the receivers of one shard.
  class Turn;
  // `by_groups`: AllGather and AllToAll are looked for, too.
  void Classify(const Side& from, const Side& to, bool by_groups);
  bool IsAllGather(const Mesh& mesh) const;
  bool IsAllToAll() const;

  int rank_ = 0;
  std::vector<DimOverlap> overlaps_;
  std::vector<int32_t> pair_refs_;  // of a piece, from first_pair on: one pair index per dimension
  Op op_ = Op::kExchange;
};

}  // namespace reshard::transfers

#endif  // RESHARD_PLANNER_TRANSFERS_LIST_TRANSFERS_H_
