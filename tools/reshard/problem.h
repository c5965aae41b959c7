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
absl::StatusOr<int64_t> ParseBytes(std::string_view text);  // 512, 64KiB, 2GiB, 1.5MB
absl::StatusOr<std::vector<int64_t>> ParseShape(std::string_view text);
// "all", "boxes", or names separated by commas; sets ops and boxes_only.
absl::Status ParseOps(std::string_view text, PlanOptions& options);

// NotFound when it cannot be read, or written whole.
absl::StatusOr<std::string> ReadFile(const std::string& path);
absl::Status WriteFile(const std::string& path, std::string_view content);

// What a message repeats of a word the user gave: its beginning.
std::string Clipped(std::string_view word);
// The candidate with the fewest edits to `word`, or nothing when none is near.
std::optional<std::string> Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_PROBLEM_H_
