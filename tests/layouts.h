// Meshes and layouts from text, for tests that write them down.
#ifndef RESHARD_TESTS_LAYOUTS_H_
#define RESHARD_TESTS_LAYOUTS_H_

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/mesh.h"
#include "reshard/layout/text.h"
#include "reshard/planner/problem.h"

namespace reshard::testing {

// Throws on bad text, which fails the test with the reason.
inline Mesh MeshOf(std::string_view text) {
  absl::StatusOr<Mesh> mesh = ParseMesh(text);
  if (!mesh.ok()) throw std::runtime_error(std::string(mesh.status().message()));
  return *std::move(mesh);
}

// Like MeshOf.
inline Layout LayoutOf(std::string_view text, const Mesh& mesh) {
  absl::StatusOr<Layout> layout = ParseLayout(text, mesh);
  if (!layout.ok()) throw std::runtime_error(std::string(layout.status().message()));
  return *std::move(layout);
}
inline Layout LayoutOf(std::string_view text, std::string_view mesh) { return LayoutOf(text, MeshOf(mesh)); }
// Like MeshOf; target_mesh may be empty.
inline Problem ProblemOf(std::string_view mesh, std::string_view source, std::string_view target,
                         std::string_view target_mesh = "", DType dtype = DType::kF32) {
  const Mesh before = MeshOf(mesh);
  return {LayoutOf(source, before), LayoutOf(target, target_mesh.empty() ? before : MeshOf(target_mesh)), dtype};
}

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_LAYOUTS_H_
