// TransferSchedule of ReduceScatter and AllReduce: the members of a group along the reduced axes hold one contribution
// each to the same box.
#ifndef RESHARD_PLANNER_TRANSFERS_REDUCE_TRANSFERS_H_
#define RESHARD_PLANNER_TRANSFERS_REDUCE_TRANSFERS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/digits/device_classes.h"
#include "planner/digits/digits.h"
#include "planner/transfers/overlap.h"
#include "reshard/planner/traffic.h"

namespace reshard::transfers {

class ReduceTransfers final : public TransferSchedule {
 public:
  // `reduced`: the digits of the group, indices into those of the refinement. InvalidArgument unless, within every
  // group, the source boxes are the same and the target boxes partition it (ReduceScatter) or equal it (AllReduce).
  static absl::StatusOr<std::unique_ptr<ReduceTransfers>> Create(Op op, const Mesh& mesh,
                                                                 const digits::Refinement& refinement,
                                                                 const std::vector<int>& reduced,
                                                                 const std::vector<const DimShards*>& from,
                                                                 const std::vector<const DimShards*>& to,
                                                                 const Topology& topology, bool aligned);

  std::vector<Message> Receives(int64_t device) const override;
  std::vector<Message> Sends(int64_t device) const override;
  TransferFigures Figures() const override { return figures_; }
  std::vector<int64_t> Devices() const override;
  DeviceLoad Load(int64_t index) const override { return loads_[loads_.size() == 1 ? 0 : static_cast<size_t>(index)]; }
  const std::vector<digits::DigitLink>* Links() const override { return loads_.size() == 1 ? &no_links_ : nullptr; }
  Op Classify() const override { return op_; }
  std::vector<AxisRef> Axes() const override {
    return digits::MergeDigits(reduced_, std::vector<bool>(reduced_.size(), true));
  }
  int64_t GroupSize() const override { return static_cast<int64_t>(members_.size()); }

 private:
  ReduceTransfers() = default;
  // Whether all boxes of a side have one size and the target only cuts or keeps what the source has, so that the device
  // at position 0 represents all. False also if the groups do not fit.
  bool AllAlike(const std::vector<const DimShards*>& from, const std::vector<const DimShards*>& to,
                const std::vector<int>& reduced) const;
  void AddLevels(int64_t position, const Topology& topology, DeviceLoad& load) const;
  // The position with the group's first coordinates.
  int64_t Base(int64_t position) const;
  Message MakeMessage(int64_t sender, int64_t receiver) const;

  Op op_ = Op::kReduceScatter;
  Mesh mesh_;
  std::vector<digits::Digit> digits_;
  std::vector<digits::Digit> reduced_;
  std::vector<int64_t> members_;  // position offsets of a group's members, ascending
  std::vector<DimOverlap> overlaps_;
  std::vector<digits::RowDigits> from_, to_;  // per dimension
  std::vector<DeviceLoad> loads_;             // a single one if all devices are alike
  std::vector<digits::DigitLink> no_links_;
  TransferFigures figures_;
};

}  // namespace reshard::transfers

#endif  // RESHARD_PLANNER_TRANSFERS_REDUCE_TRANSFERS_H_
