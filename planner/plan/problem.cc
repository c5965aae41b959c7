#include "reshard/planner/problem.h"

#include "reshard/layout/text.h"
#include "status/macros.h"

namespace reshard {

absl::StatusOr<Problem> ParseProblem(std::string_view mesh, std::string_view source, std::string_view target,
                                     std::string_view target_mesh, DType dtype) {
  const absl::StatusOr<Mesh> source_mesh = ParseMesh(mesh);
  if (!source_mesh.ok()) return source_mesh.status();
  ASSIGN_OR_RETURN(const Mesh other, target_mesh.empty() ? source_mesh : ParseMesh(target_mesh));
  ASSIGN_OR_RETURN(const Layout before, ParseLayout(source, *source_mesh));
  ASSIGN_OR_RETURN(const Layout after, ParseLayout(target, other));
  return Problem{before, after, dtype};
}

}  // namespace reshard
