// Traffic of ReduceScatter and AllReduce: groups along the reduced axes hold the same box, each member a contribution.
#ifndef RESHARD_PLANNER_SEARCH_REDUCE_TRAFFIC_H_
#define RESHARD_PLANNER_SEARCH_REDUCE_TRAFFIC_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/search/digits.h"
#include "planner/search/overlap.h"
#include "reshard/planner/traffic.h"

namespace reshard::search {

class ReduceTraffic final : public Traffic {
 public:
  // `reduced`: the digits of the group. InvalidArgument unless, within every group, the source boxes are the same and
  // the target boxes partition it (ReduceScatter) or equal it (AllReduce).
  static absl::StatusOr<std::unique_ptr<ReduceTraffic>> Create(Op op, const Mesh& mesh,
                                                               const std::vector<Digit>& reduced,
                                                               const std::vector<const DimShards*>& from,
                                                               const std::vector<const DimShards*>& to);

  std::vector<Message> Receives(int64_t device) const override;
  std::vector<Message> Sends(int64_t device) const override;
  TrafficFigures Figures() const override { return figures_; }
  std::vector<DeviceLoad> Loads() const override { return loads_; }
  Op Classify() const override { return op_; }
  std::vector<AxisRef> Axes() const override { return MergeDigits(reduced_, std::vector<bool>(reduced_.size(), true)); }
  int64_t GroupSize() const override { return static_cast<int64_t>(members_.size()); }

 private:
  ReduceTraffic() = default;
  // The position with the group's first coordinates.
  int64_t Base(int64_t position) const;
  Message MakeMessage(int64_t sender, int64_t receiver) const;

  Op op_ = Op::kReduceScatter;
  Mesh mesh_;
  std::vector<Digit> reduced_;
  std::vector<int64_t> members_;  // position offsets of a group's members, ascending
  std::vector<DimOverlap> overlaps_;
  std::vector<std::vector<int32_t>> from_row_, to_row_;  // per dimension, per position
  std::vector<DeviceLoad> loads_;
  TrafficFigures figures_;
};

}  // namespace reshard::search

#endif  // RESHARD_PLANNER_SEARCH_REDUCE_TRAFFIC_H_
