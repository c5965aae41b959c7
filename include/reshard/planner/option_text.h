// Values of planning options as people write them, on the command line, in batch files and in Python. Errors are
// InvalidArgument and say what is allowed.
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

absl::StatusOr<int64_t> ParseBytes(std::string_view text);  // 512, 64KiB, 2GiB, 1.5MB
// "all", "boxes", or names separated by commas; sets ops and boxes_only.
absl::Status ParseOps(std::string_view text, PlanOptions& options);

// What a message repeats of a word the user gave: its beginning.
std::string Clipped(std::string_view word);
// The candidate with the fewest edits to `word`, or nothing when none is near.
std::optional<std::string> Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace reshard

#endif  // RESHARD_PLANNER_OPTION_TEXT_H_
