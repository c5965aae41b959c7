// What the subcommands share: problems given as text, and reading and writing files.
#ifndef RESHARD_TOOLS_RESHARD_PROBLEM_H_
#define RESHARD_TOOLS_RESHARD_PROBLEM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/notation.h"
#include "reshard/planner/option_text.h"
#include "reshard/planner/plan.h"
#include "reshard/planner/problem.h"

namespace reshard::tool {

struct ProblemText {
  std::string mesh;
  std::string from;
  std::string to;
  std::optional<std::string> to_mesh;
  std::optional<std::vector<int64_t>> shape;  // lets `from` and `to` be layout rules
  Notation from_format = Notation::kReshard;
  Notation to_format = Notation::kReshard;
};

// The error with "name: " before it.
absl::Status Named(std::string_view name, const absl::Status& status);

// Each error names the argument that it is about.
absl::StatusOr<Problem> ReadProblem(const ProblemText& text, DType dtype);
absl::StatusOr<Mesh> ReadMesh(const std::string& text);
absl::StatusOr<Layout> ReadLayout(std::string_view name, const std::string& text, const Mesh& mesh, Notation format,
                                  const std::optional<std::vector<int64_t>>& shape);

// "512,128". InvalidArgument says what is allowed.
absl::StatusOr<std::vector<int64_t>> ParseShape(std::string_view text);

// NotFound if the file cannot be read, or not written completely.
absl::StatusOr<std::string> ReadFile(const std::string& path);
absl::Status WriteFile(const std::string& path, std::string_view content);

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_PROBLEM_H_
