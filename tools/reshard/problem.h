// What the subcommands have in common: a problem given as text, and files.
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

struct Problem {
  Layout source;
  Layout target;
};

// Errors name the argument they are about.
absl::StatusOr<Problem> ReadProblem(const ProblemText& text);
absl::StatusOr<std::shared_ptr<const Mesh>> ReadMesh(const std::string& text);
absl::StatusOr<Layout> ReadLayout(std::string_view name, const std::string& text, std::shared_ptr<const Mesh> mesh,
                                  Notation format, const std::optional<std::vector<int64_t>>& shape);

// Flag values. InvalidArgument says what is allowed.
absl::StatusOr<std::vector<int64_t>> ParseShape(std::string_view text);

// NotFound when it cannot be read, or written whole.
absl::StatusOr<std::string> ReadFile(const std::string& path);
absl::Status WriteFile(const std::string& path, std::string_view content);

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_PROBLEM_H_
