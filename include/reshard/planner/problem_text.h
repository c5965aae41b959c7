// A problem as people write it: on the command line, in the lines of a batch file and in Python.
#ifndef RESHARD_PLANNER_PROBLEM_TEXT_H_
#define RESHARD_PLANNER_PROBLEM_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/notation.h"
#include "reshard/planner/problem.h"

namespace reshard {

// The texts of a problem, in whatever notation.
struct ProblemText {
  std::string mesh;
  std::string from;
  std::string to;
  std::optional<std::string> to_mesh;         // nullopt: the target is over `mesh`
  std::optional<std::vector<int64_t>> shape;  // global sizes, in elements; lets `from` and `to` be layout rules
  Notation from_format = Notation::kReshard;
  Notation to_format = Notation::kReshard;
};

// Reads the meshes and the layouts. Errors are those of ReadMesh and ReadLayout, after the name of the part at fault:
// "mesh", "source", `to_mesh_is` or "target". If the target names an axis of another mesh, the error says to give that
// mesh as `to_mesh_is`, which is what the writer calls it: "--to-mesh".
absl::StatusOr<Problem> ReadProblem(const ProblemText& text, DType dtype, std::string_view to_mesh_is);

// A layout or a mesh alone: ReadLayout and ReadMesh, with `name` before an error.
absl::StatusOr<Layout> ReadNamedLayout(std::string_view name, const std::string& text, const Mesh& mesh,
                                       Notation notation, const std::optional<std::vector<int64_t>>& shape);
absl::StatusOr<Mesh> ReadNamedMesh(std::string_view name, const std::string& text);

// The error with "name: " before it. Keeps the payloads.
absl::Status Named(std::string_view name, const absl::Status& status);

}  // namespace reshard

#endif  // RESHARD_PLANNER_PROBLEM_TEXT_H_
