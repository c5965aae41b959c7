// TransferSchedule between two layouts over one mesh, as a formula rather than a list.
//
// Layouts are products: dimension d of a device's fragment depends only on the few digits that shard d. So everything
// that a device receives or sends is a product over dimensions of small per-dimension sums, and no message has to be
// enumerated to price a step. Who sends is given by a map on digits, sigma: the holder of source shard c that serves
// receiver r has c's coordinates on the digits that the source uses, and r's coordinate on sigma(e) for every other
// digit e. On a topology with levels sigma(e) differs from e only if no holder becomes farther by it, and a holder has
// the receiver's place in its domain if there is a choice.
#ifndef RESHARD_PLANNER_TRANSFERS_MESH_TRANSFERS_H_
#define RESHARD_PLANNER_TRANSFERS_MESH_TRANSFERS_H_

#include <memory>
#include <optional>
#include <vector>

#include "planner/digits/device_classes.h"
#include "planner/digits/digits.h"
#include "planner/transfers/overlap.h"
#include "reshard/planner/traffic.h"

namespace reshard::transfers {

// Sums over the pairs of a row of one side, with some digits of the row on the other side fixed by the coordinates of
// one device.
class PinnedSums {
 public:
  struct Sum {
    int64_t elements = 0;
    int64_t count = 0;
  };
  // `fixed_by`: per digit of `other`, the digit whose coordinate it must have, or -1. `of_receivers`: `own` is about
  // rows of the target, otherwise of the source.
  PinnedSums(const DimOverlap& overlap, const std::vector<digits::Digit>& digits, const digits::RowDigits& own,
             const digits::RowDigits& other, const std::vector<int>& fixed_by, bool of_receivers);
  Sum At(int64_t row, const int64_t* coordinates) const;

 private:
  std::vector<std::pair<int, int64_t>> keys_;  // digits outside the row that fix something, and their sizes
  int64_t num_keys_ = 1;
  std::vector<Sum> sums_;  // by row, then key
};

class MeshTransfers final : public TransferSchedule {
 public:
  // Nothing if this rule for senders would overload one (more than its even share of a shard's demand plus one piece);
  // ListTransfers then balances message by message. `from` and `to` are the shard tables of the real dimensions,
  // followed by one for the axes that stay partial, if any; `rank` is the number of real ones. `aligned`: every digit
  // belongs to one level, which the refinement has. Otherwise what crosses levels is counted message by message:
  // ResourceExhausted above 2^24 of them.
  static absl::StatusOr<std::optional<std::unique_ptr<MeshTransfers>>> Create(
      const Mesh& mesh, const digits::Refinement& refinement, const std::vector<const DimShards*>& from,
      const std::vector<const DimShards*>& to, int rank, const Topology& topology, bool aligned);

  std::vector<Message> Receives(int64_t device) const override;
  std::vector<Message> Sends(int64_t device) const override;
  TransferFigures Figures() const override { return figures_; }
  std::vector<int64_t> Devices() const override;
  DeviceLoad Load(int64_t index) const override;
  const std::vector<digits::DigitLink>* Links() const override { return uniform_ ? &links_ : nullptr; }
  Op Classify() const override { return op_; }
  std::vector<AxisRef> Axes() const override;
  int64_t GroupSize() const override { return group_size_; }

 private:
  struct Dim {
    DimOverlap overlap;
    digits::RowDigits from, to;
    std::vector<int64_t> from_length, to_length;  // elements of a row
    std::vector<int64_t> from_row, to_row;        // of each class
    std::vector<SpreadSums> received;             // by to_row
    // Sums over receivers by (from_row, pinned part of to_row): what a holder of from_row sends them.
    std::vector<int> sent_pins;  // per to digit: the sender's digit that fixes it, or -1
    std::vector<SpreadSums> sent;
    int64_t sent_pinned = 1;
    // The same for receivers that hold from_row themselves, which must not be counted as sends.
    std::vector<int> kept_pins;
    std::vector<SpreadSums> kept;
    int64_t kept_pinned = 1;
    // For each level but the outermost: what comes from and goes to devices of the same domain.
    std::vector<PinnedSums> received_near, sent_near;
  };

  MeshTransfers() = default;
  void AddDims(const std::vector<const DimShards*>& from, const std::vector<const DimShards*>& to);
  void Match(const digits::Refinement& refinement);
  bool MeetAtPlaces(const digits::Refinement& refinement, const std::vector<const DimShards*>& from);
  void EnumerateClasses();
  void SumByRow();
  void SumNear();
  bool ComputeLoads();  // false: unbalanced
  bool Balanced(const std::vector<int64_t>& sends) const;
  void FindAxes();
  void ClassifyPattern();
  bool IsAllGather() const;
  bool IsAllToAll() const;
  Message MakeMessage(int64_t sender, int64_t receiver, const std::vector<const Pair*>& pairs) const;

  struct Peers {
    int64_t senders = 0;
    int64_t receivers = 0;
  };
  // The load of the device with these coordinates, one per digit.
  DeviceLoad LoadOf(const int64_t* coordinates, Peers& peers) const;
  void CountLevels(const Topology& topology);
  void AddLevels(const int64_t* coordinates, const Peers& peers, int64_t own, int64_t kept, int64_t kept_messages,
                 DeviceLoad& load) const;
  const int64_t* coordinates(size_t one) const { return coordinates_.data() + one * digits_.size(); }
  int64_t coordinate(size_t one, int digit) const { return coordinates(one)[digit]; }
  bool swapped(size_t e) const { return sigma_[e] >= 0 && sigma_[e] != static_cast<int>(e); }

  Mesh mesh_;
  int rank_ = 0;
  int num_levels_ = 1;  // 1 also where levels are counted message by message
  std::vector<digits::Digit> digits_;
  std::vector<Dim> dims_;
  std::vector<int> from_dim_, to_dim_;  // per digit: the dimension it shards, or -1
  std::vector<int> sigma_;              // per digit not used by the source: the receiver's digit it copies; else -1
  std::vector<int> sigma_inverse_;
  bool has_swaps_ = false;  // some sigma(e) != e

  // One position stands for all that do the same: those of one class under the links of uniform layouts; otherwise
  // those that differ only in digits that do not matter.
  bool uniform_ = false;
  std::vector<std::pair<int, int>> met_;  // digits of source and target at the same place
  std::vector<digits::DigitLink> links_;
  std::vector<bool> active_digit_;
  std::vector<digits::DeviceClass> classes_;
  std::vector<int64_t> coordinates_;                    // of the classes, one per digit
  std::vector<DeviceLoad> loads_;                       // of the classes
  std::vector<std::vector<LevelLoad>> counted_levels_;  // of every position, where they were counted
  std::vector<bool> axes_;                              // digits that vary inside a group
  TransferFigures figures_;
  Op op_ = Op::kExchange;
  int64_t group_size_ = 1;
};

}  // namespace reshard::transfers

#endif  // RESHARD_PLANNER_TRANSFERS_MESH_TRANSFERS_H_
