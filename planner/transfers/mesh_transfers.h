// TransferSchedule between two layouts over one mesh, as a formula rather than a list.
//
// Layouts are products: dimension d of a device's fragment depends only on the few digits that shard d. So everything
// that a device receives or sends is a product over dimensions of small per-dimension sums, and no message has to be
// enumerated to price a step. Who sends is given by a map on digits, sigma: the holder of source shard c that serves
// receiver r has c's coordinates on the digits that the source uses, and r's coordinate on sigma(e) for every other
// digit e. On a topology with levels sigma(e) differs from e only if that makes no holder farther, and a holder has the
// receiver's place in its domain if there is a choice.
#ifndef RESHARD_PLANNER_TRANSFERS_MESH_TRANSFERS_H_
#define RESHARD_PLANNER_TRANSFERS_MESH_TRANSFERS_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "planner/digits/device_classes.h"
#include "planner/digits/device_kinds.h"
#include "planner/digits/digits.h"
#include "planner/transfers/overlap.h"
#include "planner/transfers/pinned_sums.h"
#include "planner/transfers/shard_maps.h"
#include "reshard/planner/traffic.h"

namespace reshard::transfers {

// A map on digits: the holder that serves a receiver has on digit e the receiver's coordinate on sigma[e]. -1 where e
// has the shard's coordinate, since the source uses it.
using Sigma = absl::InlinedVector<int, 12>;

class MeshTransfers final : public TransferSchedule {
 public:
  // Which holders send what no device nearby has.
  enum class Senders {
    kByPlace,  // those in the receiver's place, which makes a permutation of a swap of axes
    kAll,      // all in turn: a digit that is the same for all receivers follows one in which they differ
  };
  // `from` and `to` are the shard tables of the real dimensions, followed by one for the axes that stay partial, if
  // any; `rank` is the number of real ones. `num_levels`: that of the topology, if the refinement has a level for every
  // digit; else 1. `detail`: with kSizes, Receives and Sends may not be used. `like`: a schedule of the same detail
  // between the same two layouts, if there is one already, whose overlaps this one shares.
  static std::unique_ptr<MeshTransfers> Create(const Mesh& mesh, const digits::Refinement& refinement,
                                               const std::vector<const DimShards*>& from,
                                               const std::vector<const DimShards*>& to, int rank, int num_levels,
                                               Senders senders = Senders::kByPlace, Detail detail = Detail::kRuns,
                                               const MeshTransfers* like = nullptr);
  // Finds only what does not depend on how many devices there are. Of the public functions, only those that follow may
  // be used, and, if IsHeldOnce(), Receives and Sends. With `only`, only IsHeldOnce() may be used, and Receives and
  // Sends of the device at this position.
  static std::unique_ptr<MeshTransfers> Prepare(const Mesh& mesh, const digits::Refinement& refinement,
                                                const std::vector<const DimShards*>& from,
                                                const std::vector<const DimShards*>& to, int rank, int num_levels,
                                                Senders senders, Detail detail,
                                                std::optional<int64_t> only = std::nullopt);
  // From now on Receives and Sends may be used for the one device that `prepared` was made for. Requires that
  // `prepared` is between the same layouts, with runs.
  void TakeRuns(const MeshTransfers& prepared);
  // The busiest of at most `most_devices` devices from all over the mesh, with the choice of senders in which they send
  // less. `refine`: the refinement with more cuts, nullopt where these do not fit.
  using RefineWith = absl::FunctionRef<std::optional<digits::Refinement>(const std::vector<AxisRef>&)>;
  static BusiestLoads BusiestOfSome(const Mesh& mesh, const digits::Refinement& refinement, RefineWith refine,
                                    const std::vector<const DimShards*>& from, const std::vector<const DimShards*>& to,
                                    int num_levels, int64_t most_devices);
  // Whether every shard has one holder, apart from those that differ in digits that neither layout uses. Then it is
  // balanced, and all ways to choose senders are the same.
  bool IsHeldOnce() const;
  // Counts message by message what crosses the levels of a topology whose domains are not sub-meshes.
  // ResourceExhausted above 2^24 messages.
  absl::Status CountLevels(const Topology& topology);
  // The cuts of axes with which kAll spreads what is sent over the most holders.
  std::vector<AxisRef> CutsToSpread() const;

  // Whether no device sends more than its even share of a shard's demand, rounded up to pieces. If not, ListTransfers
  // balances piece by piece.
  bool balanced() const { return balanced_; }
  // Devices that hold the same shard of the source.
  int64_t holders() const;

  std::vector<Message> Receives(int64_t device) const override;
  std::vector<Message> Sends(int64_t device) const override;
  TransferFigures Figures() const override { return figures_; }
  std::vector<int64_t> Devices() const override;
  DeviceLoad Load(int64_t index) const override;
  const std::vector<digits::DigitLink>* Links() const override { return uniform_ ? &links_ : nullptr; }
  std::vector<int32_t> Kinds() const override;
  Op Classify() const override { return op_; }
  std::vector<AxisRef> Axes() const override;
  int64_t GroupSize() const override { return group_size_; }

 private:
  struct Dim {
    std::shared_ptr<const DimOverlap> overlap;
    std::shared_ptr<const DimOverlap> runs;  // of messages: `overlap`, or that of one device
    digits::RowDigits from, to;
    std::vector<int64_t> from_length, to_length;  // elements of a row
    std::vector<int32_t> from_row, to_row;        // of each class
    // For each level, the part of what a device needs that comes from its domain; at the outermost, all of it.
    std::vector<PinnedSums> received;
  };

  // A product over dimensions of what a device sends, before what it need not send is left out.
  struct Sums {
    Contiguity::Sum all;
    Contiguity::Sum scattered;  // of these, what is not contiguous in the device's fragment
  };
  // A set of receivers of one device: those whose coordinates are the device's own on some digits ("pins").
  struct Receivers {
    absl::InlinedVector<std::pair<int, int>, 4>
        equal;                              // pairs of digits that agree on the device, or there is no receiver
    absl::InlinedVector<int, 8> pinned_by;  // per digit of the receiver: the device's digit, or -1
    int64_t times = 1;                      // receivers that differ only in digits that neither layout uses
    std::vector<PinnedSums> sums;           // per dimension
  };

  MeshTransfers() = default;
  // Finds everything but how rows overlap, and what follows from that.
  static std::unique_ptr<MeshTransfers> Outline(const Mesh& mesh, const digits::Refinement& refinement,
                                                const std::vector<const DimShards*>& from,
                                                const std::vector<const DimShards*>& to, int rank, int num_levels,
                                                Senders senders);
  // Finds what an outline lacks, once its dimensions have overlaps.
  void SumUp() {
    SumSent();
    SumReceived();
  }
  // Chooses at most `most_devices` devices: their coordinates.
  void EnumerateSome(int64_t most_devices);
  BusiestLoads BusiestOfEnumerated();
  void Match(const digits::Refinement& refinement);
  void SpreadSenders();
  Sigma InPlace() const;
  Sigma ByPlace() const;
  std::vector<int> SpareDigits(int level) const;
  std::vector<int> Starved(int level) const;
  bool MeetAtPlaces(const digits::Refinement& refinement, const std::vector<const DimShards*>& from);
  void EnumerateClasses();
  // The same for layouts that are not uniform.
  void EnumerateActive();
  // `first`: per digit, the first of those that links tie together with it.
  void NumberPatterns(absl::Span<const int> first);
  // Which of the linked digits have equal coordinates. Requires that there are at most kMostLinked of them.
  uint64_t PatternOf(const int32_t* coordinates) const;
  void SumSent();
  void SumReceived();
  // Calls `visit` for the sums of all dimensions.
  void EachSums(absl::FunctionRef<void(PinnedSums&)> visit);
  // Frees what nothing reads once loads and pattern are known: a plan keeps the schedules of all its steps.
  void ForgetClasses();
  // `pins`: (the receiver's digit, the device's).
  using Pins = absl::InlinedVector<std::pair<int, int>, 16>;
  Receivers ReceiversOf(const Pins& pins) const;
  Sums SentTo(const Receivers& receivers, const int32_t* coordinates) const;
  // The first level within whose domains the device at `receiver` finds a holder of the shard of `holder`; -1: itself.
  int LevelOf(int64_t holder, int64_t receiver) const;
  digits::DeviceKinds KindsOfClasses() const;
  void ComputeLoads();
  bool Balanced(const std::vector<int64_t>& sends) const;
  void FindAxes();
  void ClassifyPattern();
  bool IsAllGather() const;
  bool IsAllToAll() const;
  // Calls `visit` for each piece that the device at `position` receives, or sends, including the copy of what it keeps,
  // with the position of the other device and a pair per dimension.
  using PieceVisitor = absl::FunctionRef<void(int64_t, const std::vector<const Pair*>&)>;
  void EachReceived(int64_t position, PieceVisitor visit) const;
  void EachSent(int64_t position, PieceVisitor visit) const;
  Message MakeMessage(int64_t sender, int64_t receiver, const std::vector<const Pair*>& pairs) const;

  struct Peers {
    int64_t senders = 0;
    int64_t receivers = 0;
    absl::InlinedVector<int64_t, 4> senders_at;  // by level, where there are several
  };
  // The load of the device with these coordinates, one per digit.
  DeviceLoad LoadOf(const int32_t* coordinates, Peers& peers) const;
  void AddSent(const int32_t* coordinates, const Sums& own, Peers& peers, DeviceLoad& load) const;
  void AddReceived(const int32_t* coordinates, Peers& peers, int64_t own, DeviceLoad& load) const;
  const int32_t* coordinates(size_t one) const { return coordinates_.data() + one * digits_.size(); }
  size_t num_coordinates() const { return digits_.empty() ? 1 : coordinates_.size() / digits_.size(); }
  int32_t coordinate(size_t one, int digit) const { return coordinates(one)[digit]; }
  int64_t devices(size_t one) const {
    return uniform_ ? devices_[one] : mesh_.size() / static_cast<int64_t>(num_classes_);
  }
  const DeviceLoad& load(size_t one) const { return loads_[static_cast<size_t>(kind_[one])]; }
  // The class of a position. Requires that layouts are not uniform.
  int64_t ClassAt(int64_t position) const;
  // The same for uniform layouts. Requires that patterns are numbered.
  size_t ClassOfPattern(int64_t position) const;

  Mesh mesh_;
  int rank_ = 0;
  int num_levels_ = 1;  // 1 also where levels are counted message by message
  std::vector<digits::Digit> digits_;
  std::vector<Dim> dims_;
  absl::InlinedVector<int, 12> from_dim_, to_dim_;  // per digit: the dimension it shards, or -1
  absl::InlinedVector<int, 12> displaced_;          // per target digit: the source digit at its place, or -1
  // By the level at which a receiver's nearest holders are. On the digits of farther levels each is the identity, since
  // a holder shares these with the receiver.
  std::vector<Sigma> sigma_;
  // By level: the receivers that are in the device's domain of that level, and those of them that find a holder in a
  // smaller one. The latter are left out where they are the former of the level before, or just the device.
  std::vector<Receivers> within_;
  std::vector<std::optional<Receivers>> nearer_;
  bool balanced_ = false;

  // One position stands for all that do the same: those of one class under the links of uniform layouts; otherwise
  // those that differ only in digits that do not matter.
  bool uniform_ = false;
  std::vector<std::pair<int, int>> met_;  // digits of source and target at the same place
  std::vector<digits::DigitLink> links_;
  // Of uniform layouts: the digits of links, each with the first digit that links tie to it, and the classes by their
  // patterns. Empty where there are more than kMostLinked such digits.
  static constexpr size_t kMostLinked = 16;
  std::vector<std::pair<int, int>> linked_;
  std::vector<std::pair<uint64_t, size_t>> class_of_pattern_;
  std::vector<bool> active_digit_;
  size_t num_classes_ = 0;
  std::vector<int64_t> devices_;            // of the classes of uniform layouts; otherwise all have as many
  std::vector<int32_t> coordinates_;        // of the classes, or of some devices, one per digit
  std::vector<int32_t> kind_;               // of the classes: those of one kind have the same load
  std::vector<DeviceLoad> loads_;           // of the kinds
  std::vector<LevelLoads> counted_levels_;  // of every position, where they were counted
  std::vector<bool> axes_;                  // digits that vary inside a group
  TransferFigures figures_;
  Op op_ = Op::kExchange;
  int64_t group_size_ = 1;
};

}  // namespace reshard::transfers

#endif  // RESHARD_PLANNER_TRANSFERS_MESH_TRANSFERS_H_
