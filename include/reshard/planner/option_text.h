// Planning options as people write them on the command line, in batch files and in Python. Errors are InvalidArgument
// and say what is allowed.
#ifndef RESHARD_PLANNER_OPTION_TEXT_H_
#define RESHARD_PLANNER_OPTION_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/planner/plan.h"

namespace reshard {

// A number of bytes: 512, 64KiB, 2GiB, 1.5MB.
absl::StatusOr<int64_t> ParseBytes(std::string_view text);
// "all", "boxes", or names of operations separated by commas. Sets options.ops and options.boxes_only.
absl::Status ParseOps(std::string_view text, PlanOptions& options);

// The beginning of a word that the user gave, short enough to be repeated in a message.
std::string Clipped(std::string_view word);
// The candidate with the smallest edit distance from `word`, or nullopt if none is close.
std::optional<std::string> Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace reshard

#endif  // RESHARD_PLANNER_OPTION_TEXT_H_
