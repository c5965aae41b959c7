#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "layout/flatten.h"
#include "python/core/module.h"
#include "python/core/names.h"
#include "python/core/status.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/notation.h"
#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"
#include "reshard/planner/html.h"
#include "reshard/planner/problem_text.h"
#include "reshard/planner/report.h"
#include "status/macros.h"

namespace reshard::core {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

constexpr int64_t kMostBoxes = int64_t{1} << 20;

// Offset and size, in elements.
using Box = std::tuple<std::vector<int64_t>, std::vector<int64_t>>;
// What one device holds along the tensor dimensions that form one layout dimension: boxes, each with an interval per
// tensor dimension.
using Parts = std::vector<std::vector<Interval>>;

absl::StatusOr<int64_t> PositionOf(const Layout& layout, int64_t device) {
  const std::optional<int64_t> position = layout.mesh().Position(device);
  if (position) return *position;
  return absl::InvalidArgumentError(absl::StrCat("the mesh ", ToString(layout.mesh()), " has no device ", device));
}

// The parts of every dimension of the layout, combined: the last one varies fastest.
absl::StatusOr<std::vector<Box>> BoxesOf(const Layout& layout, int64_t device) {
  ASSIGN_OR_RETURN(const int64_t position, PositionOf(layout, device));
  std::vector<Box> boxes = {{}};
  for (int d = 0; d < layout.rank(); ++d) {
    const std::vector<int64_t> sizes = layout::SizesOf(layout.dim(d));
    Parts parts;
    for (const Interval& held : layout.Intervals(position, d)) {
      for (std::vector<Interval>& part : layout::BoxesOfRun(sizes, held)) parts.push_back(std::move(part));
    }
    const std::optional<int64_t> count = CheckedMul(boxes.size(), parts.size());
    if (!count || *count > kMostBoxes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("device ", device, " holds more than ", kMostBoxes, " boxes of ", ToString(layout)));
    }
    std::vector<Box> longer;
    longer.reserve(*count);
    for (const Box& box : boxes) {
      for (const std::vector<Interval>& part : parts) {
        auto& [offset, size] = longer.emplace_back(box);
        for (const Interval& interval : part) {
          offset.push_back(interval.begin);
          size.push_back(interval.length());
        }
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

std::vector<int64_t> DevicesOf(const Mesh& mesh) {
  std::vector<int64_t> devices(mesh.size());
  for (int64_t position = 0; position < mesh.size(); ++position) devices[position] = mesh.Device(position);
  return devices;
}

absl::StatusOr<Layout> ReadLayoutOf(const std::string& mesh_text, const std::string& text, const std::string& format,
                                    const std::optional<std::vector<int64_t>>& shape) {
  ASSIGN_OR_RETURN(const Notation notation, ReadNotation(format));
  ASSIGN_OR_RETURN(const Mesh mesh, ReadNamedMesh("mesh", mesh_text));
  return ReadNamedLayout("layout", text, mesh, notation, shape);
}

}  // namespace

void AddLayouts(nb::module_& module) {
  nb::class_<Layout>(module, "Layout")
      .def("text", [](const Layout& layout) { return ToString(layout); })
      .def("mesh", [](const Layout& layout) { return ToString(layout.mesh()); })
      .def("shape", &Layout::shape)
      .def("devices", [](const Layout& layout) { return DevicesOf(layout.mesh()); })
      .def("partial",
           [](const Layout& layout) -> std::optional<std::string> {
             if (!layout.partial()) return std::nullopt;
             return Name(layout.partial()->op);
           })
      .def("local_shape", [](const Layout& layout,
                             int64_t device) { return layout.LocalShape(ValueOrRaise(PositionOf(layout, device))); })
      .def("boxes", [](const Layout& layout, int64_t device) { return ValueOrRaise(BoxesOf(layout, device)); })
      .def("same_as", [](const Layout& layout, const Layout& other) { return ValueOrRaise(Equivalent(layout, other)); })
      .def(nb::self == nb::self)
      .def("__hash__", [](const Layout& layout) { return absl::HashOf(layout); })
      .def("draw", &DrawLayout, "device"_a.none())
      .def("svg", &LayoutToSvg, "device"_a.none())
      .def("html", &LayoutToHtml, "device"_a.none());
  module.def(
      "layout",
      [](const std::string& mesh, const std::string& text, const std::string& format,
         const std::optional<std::vector<int64_t>>& shape) {
        return ValueOrRaise(ReadLayoutOf(mesh, text, format, shape));
      },
      "mesh"_a, "layout"_a, "format"_a, "shape"_a.none());
}

}  // namespace reshard::core
