// A mesh: named axes with sizes over a list of device ids, row-major (the first axis is the slowest).
//
//   {X:4,Y:2}          devices 0..7; device 5 has coordinates X=2, Y=1
//   {X:4,Y:2}@32       devices 32..39 in row-major order
//   {X:2}@[7,3]        X=0 is device 7, X=1 is device 3
//   {}                 one device
//
// "Position" is the row-major index of a device within its mesh (0..size-1); "device" is its id.
#ifndef RESHARD_LAYOUT_MESH_H_
#define RESHARD_LAYOUT_MESH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace reshard {

// More devices than this in one mesh are refused.
inline constexpr int64_t kMaxDevices = int64_t{1} << 22;
// Device ids must stay below this.
inline constexpr int64_t kMaxDeviceId = int64_t{1} << 31;

class Mesh {
 public:
  struct Axis {
    std::string name;
    int64_t size = 1;
    bool operator==(const Axis&) const = default;
  };

  // One device, id 0, no axes: `{}`.
  Mesh() = default;

  // Devices first_device, first_device+1, ... in row-major order.
  // InvalidArgument: a bad or repeated name, a size below 1, more than kMaxDevices devices, ids out of range.
  static absl::StatusOr<Mesh> Create(std::vector<Axis> axes, int64_t first_device = 0);
  // Explicit ids in row-major order. Also InvalidArgument: wrong count, a repeated or negative id.
  static absl::StatusOr<Mesh> Create(std::vector<Axis> axes, std::vector<int64_t> device_ids);

  int num_axes() const { return static_cast<int>(axes_.size()); }
  const std::vector<Axis>& axes() const { return axes_; }
  const Axis& axis(int index) const { return axes_[static_cast<size_t>(index)]; }
  std::optional<int> FindAxis(std::string_view name) const;

  // Number of devices: the product of the axis sizes.
  int64_t size() const { return size_; }
  // Positions between neighbours along the axis: the product of the sizes of the axes behind it.
  int64_t stride(int axis) const { return strides_[static_cast<size_t>(axis)]; }
  // The coordinate of `position` along the axis.
  int64_t Coordinate(int64_t position, int axis) const { return position / stride(axis) % this->axis(axis).size; }

  // The device id at a position.
  int64_t Device(int64_t position) const {
    return ids_.empty() ? first_device_ + position : ids_[static_cast<size_t>(position)];
  }
  // The position of a device id, or nothing when the mesh does not contain it.
  std::optional<int64_t> Position(int64_t device) const;
  // The highest device id + 1.
  int64_t world() const { return world_; }

  // True when ids are first_device(), first_device()+1, ...; explicit lists that happen to be so compare equal to it.
  bool contiguous() const { return ids_.empty(); }
  int64_t first_device() const { return first_device_; }
  // The explicit ids; empty when contiguous().
  const std::vector<int64_t>& device_ids() const { return ids_; }

  // Same axes (names, sizes, order) and same ids.
  bool operator==(const Mesh& other) const {
    return axes_ == other.axes_ && ids_ == other.ids_ && Device(0) == other.Device(0);
  }

 private:
  std::vector<Axis> axes_;
  std::vector<int64_t> strides_;
  int64_t size_ = 1;
  int64_t first_device_ = 0;
  int64_t world_ = 1;
  std::vector<int64_t> ids_;
  std::vector<std::pair<int64_t, int64_t>> position_by_id_;  // sorted by id; empty when contiguous
};

}  // namespace reshard

#endif  // RESHARD_LAYOUT_MESH_H_
