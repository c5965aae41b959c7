// Layouts as the dispatcher passes them on, which knows no other types than text and tensors.
#ifndef RESHARD_RUNTIME_PYTORCH_LAYOUT_TEXTS_H_
#define RESHARD_RUNTIME_PYTORCH_LAYOUT_TEXTS_H_

#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"
#include "reshard/planner/problem.h"

namespace reshard::pytorch {

// Parses, or finds what this process parsed before: a job says the same few texts at every step. Any thread.
// InvalidArgument: text that does not parse.
absl::StatusOr<Layout> LayoutOf(std::string_view mesh, std::string_view layout);

// One tensor's problem as text; target_mesh is empty if it is that of the source.
struct ProblemTexts {
  std::string_view mesh;
  std::string_view target_mesh;
  std::string_view source;
  std::string_view target;
  bool operator==(const ProblemTexts&) const = default;
};

// The problems of `count` tensors, of which texts(i) gives the i-th. Their dtype is left to the tensors. Errors begin
// with "tensor 3: " unless there is only one.
absl::StatusOr<std::vector<Problem>> ProblemsOf(size_t count, absl::FunctionRef<ProblemTexts(size_t)> texts);

}  // namespace reshard::pytorch

#endif  // RESHARD_RUNTIME_PYTORCH_LAYOUT_TEXTS_H_
