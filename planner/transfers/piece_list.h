// What schedules that list every piece have in common: who sends it to whom, in order, and what each device does.
#ifndef RESHARD_PLANNER_TRANSFERS_PIECE_LIST_H_
#define RESHARD_PLANNER_TRANSFERS_PIECE_LIST_H_

#include <cstdint>
#include <vector>

#include "planner/digits/digits.h"
#include "planner/transfers/shard_maps.h"
#include "reshard/layout/shard_map.h"
#include "reshard/planner/traffic.h"

namespace reshard::transfers {

// The devices of a step: those of the source mesh in order, then those only in the target mesh.
struct Ends {
  Ends() = default;
  Ends(const Mesh& from, const Mesh& to);
  std::vector<int64_t> devices;   // ids
  std::vector<int32_t> to_index;  // of each position of the target mesh, its index in `devices`
  int64_t num_from = 0;           // positions of the source mesh: the first indices in `devices`
  bool same_mesh = false;
};

// One layout's side: its mesh and, per dimension, the table and the row of each position.
struct Side {
  const Mesh* mesh = nullptr;
  std::vector<const DimShards*> dims;  // real dimensions, then retained partial axes
};

class PieceList : public TransferSchedule {
 public:
  std::vector<Message> Receives(int64_t device) const final;
  std::vector<Message> Sends(int64_t device) const final;
  TransferFigures Figures() const final { return figures_; }
  std::vector<int64_t> Devices() const final { return ends_.devices; }
  DeviceLoad Load(int64_t index) const final { return loads_[index]; }
  std::vector<AxisRef> Axes() const final { return axes_; }
  int64_t GroupSize() const final { return group_size_; }

 protected:
  struct BoxTransfer {
    int32_t sender = 0;  // indices into ends_.devices
    int32_t receiver = 0;
    int64_t first_pair = 0;  // into what the schedule keeps of each piece
    int64_t elements = 0;
  };
  // Whether a piece lies in one stretch of the fragment, on each side.
  struct InOnePart {
    bool from = true;
    bool to = true;
  };

  // Sets what loads_ hold before and after. Rows: of each dimension, by position.
  void SetSizes(const Side& from, const Side& to, const std::vector<std::vector<int32_t>>& from_rows,
                const std::vector<std::vector<int32_t>>& to_rows);
  // Brings pieces_ into order, for Receives and Sends. Requires ends_ and pieces_.
  void Sort();
  // Loads and figures. Requires SetSizes().
  void Count(const Topology& topology);
  // `digits`: of the mesh, so fine that Axes() can return some of them; not used between meshes.
  void FindAxes(const std::vector<digits::Digit>& digits);
  virtual Message MakeMessage(const BoxTransfer& piece) const = 0;
  virtual InOnePart Contiguous(const BoxTransfer& piece) const = 0;

  Ends ends_;
  std::vector<BoxTransfer> pieces_;  // by receiver, then sender
  std::vector<DeviceLoad> loads_;    // by device
  TransferFigures figures_;

 private:
  // The messages that the device sends, or receives, by ascending peer.
  std::vector<Message> MessagesOf(int64_t device, bool sent) const;

  std::vector<int64_t> first_of_receiver_;
  std::vector<int32_t> by_sender_;
  std::vector<int64_t> first_of_sender_;
  std::vector<AxisRef> axes_;
  int64_t group_size_ = 1;
};

// The axes of a mesh, whole, as digits.
std::vector<digits::Digit> WholeAxes(const Mesh& mesh);

}  // namespace reshard::transfers

#endif  // RESHARD_PLANNER_TRANSFERS_PIECE_LIST_H_
