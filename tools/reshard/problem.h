// What the subcommands share: shapes as text, and reading and writing files.
#ifndef RESHARD_TOOLS_RESHARD_PROBLEM_H_
#define RESHARD_TOOLS_RESHARD_PROBLEM_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/planner/problem_text.h"

namespace reshard::tool {

// "512,128". InvalidArgument says what is allowed.
absl::StatusOr<std::vector<int64_t>> ParseShape(std::string_view text);

// NotFound if the file cannot be read, or cannot be written completely.
absl::StatusOr<std::string> ReadFile(const std::string& path);
absl::Status WriteFile(const std::string& path, std::string_view content);

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_PROBLEM_H_
