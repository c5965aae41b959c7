#include "reshard/planner/problem_text.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "reshard/layout/text.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard {

absl::Status Named(std::string_view name, const absl::Status& status) {
  absl::Status named(status.code(), absl::StrCat(status::View(name), ": ", status.message()));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) { named.SetPayload(type, payload); });
  return named;
}

absl::StatusOr<Mesh> ReadNamedMesh(std::string_view name, const std::string& text) {
  absl::StatusOr<Mesh> mesh = ReadMesh(text);
  if (!mesh.ok()) return Named(name, mesh.status());
  return mesh;
}

absl::StatusOr<Layout> ReadNamedLayout(std::string_view name, const std::string& text, const Mesh& mesh,
                                       Notation notation, const std::optional<std::vector<int64_t>>& shape) {
  absl::StatusOr<Layout> layout = ReadLayout(text, mesh, notation, shape);
  if (!layout.ok()) return Named(name, layout.status());
  return layout;
}

absl::StatusOr<Problem> ReadProblem(const ProblemText& text, DType dtype, std::string_view to_mesh_is) {
  ASSIGN_OR_RETURN(const Mesh mesh, ReadNamedMesh("mesh", text.mesh));
  Mesh target_mesh = mesh;
  if (text.to_mesh) {
    ASSIGN_OR_RETURN(target_mesh, ReadNamedMesh(to_mesh_is, *text.to_mesh));
  }
  ASSIGN_OR_RETURN(const Layout source, ReadNamedLayout("source", text.from, mesh, text.from_format, text.shape));
  absl::StatusOr<Layout> target = ReadLayout(text.to, target_mesh, text.to_format, text.shape);
  if (target.ok()) return Problem{source, *target, dtype};
  if (NamesUnknownAxis(target.status()) && !text.to_mesh) {
    return Named(absl::StrCat("target (for one on another mesh, give that as ", status::View(to_mesh_is), ")"),
                 target.status());
  }
  return Named("target", target.status());
}

}  // namespace reshard
