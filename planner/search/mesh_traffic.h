// Traffic between two layouts over one mesh, as a formula rather than a list.
//
// Layouts are products: dimension d of a device's fragment depends on the few digits that shard d. So everything a
// device receives or sends is a product over dimensions of small per-dimension sums, and no message is enumerated to
// price a step. Who sends is given by one map on digits (see Matching): the holder of source shard c that serves
// receiver r has c's coordinates on the digits the source uses and r's coordinate on sigma(e) for every other digit e.
#ifndef RESHARD_PLANNER_SEARCH_MESH_TRAFFIC_H_
#define RESHARD_PLANNER_SEARCH_MESH_TRAFFIC_H_

#include <memory>
#include <optional>
#include <vector>

#include "planner/search/digits.h"
#include "planner/search/overlap.h"
#include "reshard/planner/traffic.h"

namespace reshard::search {

class MeshTraffic final : public Traffic {
 public:
  // Nothing when this sender rule would overload a sender (more than its even share of a shard's demand plus one
  // piece); ListTraffic then balances message by message. `from` and `to` are the shard tables of the real dimensions
  // followed by one of the retained pending axes, if any; `rank` counts the real ones.
  static std::unique_ptr<MeshTraffic> Create(const Mesh& mesh, const Refinement& refinement,
                                             const std::vector<const DimShards*>& from,
                                             const std::vector<const DimShards*>& to, int rank);

  std::vector<Message> Receives(int64_t device) const override;
  std::vector<Message> Sends(int64_t device) const override;
  TrafficFigures Figures() const override { return figures_; }
  std::vector<DeviceLoad> Loads() const override;
  Op Classify() const override { return op_; }
  std::vector<AxisRef> Axes() const override;
  int64_t GroupSize() const override { return group_size_; }

 private:
  struct Dim {
    DimOverlap overlap;
    std::vector<int> from_digits, to_digits;        // major first
    std::vector<int64_t> from_weights, to_weights;  // row = sum of coordinate * weight
    std::vector<int64_t> from_length, to_length;    // elements of a row
    std::vector<int32_t> from_row, to_row;          // of each active position
    std::vector<SpreadSums> received;               // by to_row
    // Sums over receivers by (from_row, pinned part of to_row): what a holder of from_row sends them.
    std::vector<int> sent_pins;  // per to digit: the sender's digit that fixes it, or -1
    std::vector<SpreadSums> sent;
    int64_t sent_pinned = 1;
    // The same for receivers that hold from_row themselves, which must not be counted as sends.
    std::vector<int> kept_pins;
    std::vector<SpreadSums> kept;
    int64_t kept_pinned = 1;
  };

  MeshTraffic() = default;
  void AddDims(const std::vector<const DimShards*>& from, const std::vector<const DimShards*>& to);
  void Match(const Refinement& refinement);
  void EnumerateActive();
  void SumByRow();
  bool ComputeLoads();  // false: unbalanced
  void FindAxes();
  void ClassifyPattern();
  bool IsAllGather() const;
  bool IsAllToAll() const;
  Message MakeMessage(int64_t sender, int64_t receiver, const std::vector<const Pair*>& pairs) const;
  int64_t coordinate(size_t active, int digit) const {
    return coordinates_[active * digits_.size() + static_cast<size_t>(digit)];
  }

  Mesh mesh_;
  int rank_ = 0;
  std::vector<Digit> digits_;
  std::vector<Dim> dims_;
  std::vector<int> from_dim_, to_dim_;  // per digit: the dimension it shards, or -1
  std::vector<int> sigma_;              // per digit not used by the source: the receiver's digit it copies; else -1
  std::vector<int> sigma_inverse_;
  bool has_swaps_ = false;  // some sigma(e) != e

  // Positions that differ in a digit that matters; the others are copies of these.
  std::vector<bool> active_digit_;
  int64_t num_active_ = 1;
  int64_t copies_ = 1;
  std::vector<int64_t> coordinates_;
  std::vector<DeviceLoad> loads_;  // of the active positions
  std::vector<bool> axes_;         // digits that vary inside a group
  TrafficFigures figures_;
  Op op_ = Op::kExchange;
  int64_t group_size_ = 1;
};

}  // namespace reshard::search

#endif  // RESHARD_PLANNER_SEARCH_MESH_TRAFFIC_H_
