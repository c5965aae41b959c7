// A mesh: named axes with sizes over a list of device ids, in row-major order (the first axis varies slowest).
//
//   {X:4,Y:2}          devices 0..7; device 5 has coordinates X=2, Y=1
//   {X:4,Y:2}@32       devices 32..39 in row-major order
//   {X:2}@[7,3]        X=0 is device 7, X=1 is device 3
//   {}                 one device
//
// A "position" is the row-major index of a device within its mesh (0..size-1); a "device" is its id.
#ifndef RESHARD_LAYOUT_MESH_H_
#define RESHARD_LAYOUT_MESH_H_

#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace reshard {

// Maximum number of devices in one mesh; larger meshes are refused.
inline constexpr int64_t kMaxDevices = int64_t{1} << 22;
// Device ids must be below this.
inline constexpr int64_t kMaxDeviceId = int64_t{1} << 31;

// An immutable mesh. A value type: copies share their state, so a copy costs a reference count whatever the size of the
// mesh, and a moved-from mesh keeps its value.
class Mesh {
 public:
  // One axis of the mesh.
  struct Axis {
    std::string name;  // unique in the mesh; [A-Za-z_][A-Za-z0-9_.]*
    int64_t size = 1;  // number of coordinates, at least 1
    bool operator==(const Axis&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Axis& axis) {
      return H::combine(std::move(h), axis.name, axis.size);
    }
  };

  // One device, id 0, no axes: `{}`.
  Mesh();
  Mesh(const Mesh&) = default;
  Mesh& operator=(const Mesh&) = default;

  // Devices first_device, first_device+1, ... in row-major order.
  // InvalidArgument: a malformed or repeated name, a size below 1, more than kMaxDevices devices, ids out of range.
  static absl::StatusOr<Mesh> Create(std::vector<Axis> axes, int64_t first_device = 0);
  // Explicit ids in row-major order. InvalidArgument also for a wrong number of ids, or a repeated or negative id.
  static absl::StatusOr<Mesh> Create(std::vector<Axis> axes, std::vector<int64_t> device_ids);

  // Axes of size 1 included.
  int num_axes() const { return static_cast<int>(state_->axes.size()); }
  // Slowest first.
  const std::vector<Axis>& axes() const { return state_->axes; }
  // Requires 0 <= index < num_axes().
  const Axis& axis(int index) const {
    assert(index >= 0 && index < num_axes());
    return state_->axes[index];
  }
  // The index of the axis with that name, or nullopt if there is none.
  std::optional<int> FindAxis(std::string_view name) const;

  // Number of devices: the product of the axis sizes.
  int64_t size() const { return state_->size; }
  // Distance in positions between neighbors along the axis: the product of the sizes of the axes after it.
  int64_t stride(int axis) const { return state_->strides[axis]; }
  // The coordinate of `position` along the axis.
  int64_t Coordinate(int64_t position, int axis) const { return position / stride(axis) % this->axis(axis).size; }

  // The device id at a position.
  int64_t Device(int64_t position) const { return contiguous() ? first_device() + position : state_->ids[position]; }
  // The position of a device id, or nullopt if the mesh does not contain it.
  std::optional<int64_t> Position(int64_t device) const;
  // The highest device id plus one.
  int64_t world() const { return state_->world; }

  // True if the ids are first_device(), first_device()+1, ...; an explicit list of such ids is stored, and compares, as
  // the same mesh.
  bool contiguous() const { return state_->ids.empty(); }
  // The lowest device id if contiguous().
  int64_t first_device() const { return state_->first_device; }
  // The explicit ids in row-major order; empty if contiguous().
  const std::vector<int64_t>& device_ids() const { return state_->ids; }

  // Same axes (names, sizes, order) and same ids.
  bool operator==(const Mesh& other) const;
  // Hashes the axes and the first and last id; only operator== tells apart meshes that differ in the ids between.
  template <typename H>
  friend H AbslHashValue(H h, const Mesh& mesh) {
    return H::combine(std::move(h), mesh.axes(), mesh.Device(0), mesh.Device(mesh.size() - 1));
  }

 private:
  struct State {
    std::vector<Axis> axes;
    std::vector<int64_t> strides;
    int64_t size = 1;
    int64_t first_device = 0;
    int64_t world = 1;
    std::vector<int64_t> ids;
    std::vector<std::pair<int64_t, int64_t>> position_by_id;  // sorted by id; empty when contiguous
  };

  explicit Mesh(State state);

  std::shared_ptr<const State> state_;  // never null
};

}  // namespace reshard

#endif  // RESHARD_LAYOUT_MESH_H_
