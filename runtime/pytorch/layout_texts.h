// Layouts as text, the form that a traced graph can hold.
#ifndef RESHARD_RUNTIME_PYTORCH_LAYOUT_TEXTS_H_
#define RESHARD_RUNTIME_PYTORCH_LAYOUT_TEXTS_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"
#include "reshard/planner/problem.h"

namespace reshard::pytorch {

// Parses a layout, or returns what this process parsed before: a job passes the same few texts at every step.
// Thread-safe. InvalidArgument: text that does not parse.
absl::StatusOr<Layout> LayoutOf(std::string_view mesh, std::string_view layout);
// The canonical text of the layout that `make` makes over a mesh; LayoutOf then finds it without parsing. Thread-safe.
absl::StatusOr<std::string> TextOf(std::string_view mesh, absl::FunctionRef<absl::StatusOr<Layout>(const Mesh&)> make);

// One tensor's problem as text; target_mesh is empty if it is the mesh of the source.
struct ProblemTexts {
  std::string_view mesh;
  std::string_view target_mesh;
  std::string_view source;
  std::string_view target;
  bool operator==(const ProblemTexts&) const = default;
};

// Parses the problems of `count` tensors; texts(i) gives the i-th. Problem::dtype is a placeholder (kU8), which the
// caller sets. Errors begin with "tensor 3: " unless there is only one tensor.
absl::StatusOr<std::vector<Problem>> ProblemsOf(size_t count, absl::FunctionRef<ProblemTexts(size_t)> texts);

}  // namespace reshard::pytorch

#endif  // RESHARD_RUNTIME_PYTORCH_LAYOUT_TEXTS_H_
