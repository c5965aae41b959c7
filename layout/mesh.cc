#include "reshard/layout/mesh.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "layout/names.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"

namespace reshard {
namespace {

// No mesh has more axes than this; 22 of them can be larger than 1. Keeps every look-up by name short.
constexpr size_t kMaxAxes = 1024;

// Checks names and sizes; gives the number of devices.
absl::StatusOr<int64_t> CountDevices(const std::vector<Mesh::Axis>& axes) {
  if (axes.size() > kMaxAxes) {
    return absl::InvalidArgumentError(absl::StrCat("the mesh has ", axes.size(), " axes; at most ", kMaxAxes));
  }
  int64_t devices = 1;
  for (const Mesh::Axis& axis : axes) {
    if (!layout::IsName(axis.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", layout::Printable(axis.name), "\" is not a name for a mesh axis"));
    }
    if (axis.size < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("axis ", layout::Printable(axis.name), " has size ", axis.size, "; it must be at least 1"));
    }
    const std::optional<int64_t> product = CheckedMul(devices, axis.size);
    if (!product || *product > kMaxDevices) {
      return absl::InvalidArgumentError(absl::StrCat("the mesh has more than ", kMaxDevices, " devices"));
    }
    devices = *product;
  }
  std::vector<std::string_view> names;
  names.reserve(axes.size());
  for (const Mesh::Axis& axis : axes) names.push_back(axis.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    return absl::InvalidArgumentError(absl::StrCat("the mesh has two axes named ", layout::Printable(*twice)));
  }
  return devices;
}

std::vector<int64_t> RowMajorStrides(const std::vector<Mesh::Axis>& axes) {
  std::vector<int64_t> strides(axes.size());
  int64_t stride = 1;
  for (size_t i = axes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= axes[i].size;
  }
  return strides;
}

}  // namespace

Mesh::Mesh() {
  static const auto* const one_device = new std::shared_ptr<const State>(std::make_shared<const State>());
  state_ = *one_device;
}

Mesh::Mesh(State state) : state_(std::make_shared<const State>(std::move(state))) {}

absl::StatusOr<Mesh> Mesh::Create(std::vector<Axis> axes, int64_t first_device) {
  ASSIGN_OR_RETURN(const int64_t size, CountDevices(axes));
  if (first_device < 0 || first_device > kMaxDeviceId - size) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ids must lie in 0..", kMaxDeviceId - 1, "; the first one is ", first_device));
  }
  State mesh;
  mesh.strides = RowMajorStrides(axes);
  mesh.axes = std::move(axes);
  mesh.size = size;
  mesh.first_device = first_device;
  mesh.world = first_device + size;
  return Mesh(std::move(mesh));
}

absl::StatusOr<Mesh> Mesh::Create(std::vector<Axis> axes, std::vector<int64_t> device_ids) {
  ASSIGN_OR_RETURN(const int64_t size, CountDevices(axes));
  if (static_cast<int64_t>(device_ids.size()) != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("the mesh has ", size, " devices but ", device_ids.size(), " ids are given"));
  }
  bool contiguous = true;
  for (size_t i = 0; i < device_ids.size(); ++i) {
    if (device_ids[i] < 0 || device_ids[i] >= kMaxDeviceId) {
      return absl::InvalidArgumentError(
          absl::StrCat("device ids must lie in 0..", kMaxDeviceId - 1, "; one of them is ", device_ids[i]));
    }
    contiguous = contiguous && device_ids[i] == device_ids[0] + static_cast<int64_t>(i);
  }
  if (contiguous) return Create(std::move(axes), device_ids[0]);

  State mesh;
  mesh.position_by_id.reserve(device_ids.size());
  for (size_t i = 0; i < device_ids.size(); ++i) {
    mesh.position_by_id.emplace_back(device_ids[i], static_cast<int64_t>(i));
  }
  std::sort(mesh.position_by_id.begin(), mesh.position_by_id.end());
  for (size_t i = 1; i < mesh.position_by_id.size(); ++i) {
    if (mesh.position_by_id[i].first == mesh.position_by_id[i - 1].first) {
      return absl::InvalidArgumentError(absl::StrCat("device ", mesh.position_by_id[i].first, " is given twice"));
    }
  }
  mesh.strides = RowMajorStrides(axes);
  mesh.axes = std::move(axes);
  mesh.size = size;
  mesh.first_device = device_ids[0];
  mesh.world = mesh.position_by_id.back().first + 1;
  mesh.ids = std::move(device_ids);
  return Mesh(std::move(mesh));
}

std::optional<int> Mesh::FindAxis(std::string_view name) const {
  const std::vector<Axis>& all = axes();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].name == name) return static_cast<int>(i);
  }
  return std::nullopt;
}

std::optional<int64_t> Mesh::Position(int64_t device) const {
  if (contiguous()) {
    if (device < first_device() || device >= first_device() + size()) return std::nullopt;
    return device - first_device();
  }
  const std::vector<std::pair<int64_t, int64_t>>& by_id = state_->position_by_id;
  const auto at = std::lower_bound(by_id.begin(), by_id.end(), std::pair<int64_t, int64_t>(device, 0));
  if (at == by_id.end() || at->first != device) return std::nullopt;
  return at->second;
}

bool Mesh::operator==(const Mesh& other) const {
  return state_ == other.state_ ||
         (axes() == other.axes() && state_->ids == other.state_->ids && first_device() == other.first_device());
}

}  // namespace reshard
