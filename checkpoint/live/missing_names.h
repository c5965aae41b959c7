// The message about requested names that do not exist.
#ifndef RESHARD_CHECKPOINT_LIVE_MISSING_NAMES_H_
#define RESHARD_CHECKPOINT_LIVE_MISSING_NAMES_H_

#include <string>
#include <vector>

namespace reshard::live {

// 3 names are not in the checkpoint: "a.w" (did you mean "a.W"?), "b", "c"; all are there with the prefix "model."
// Here `where` is "the checkpoint". Lists the first ten, and for the first three the nearest existing name; where there
// is none, some that exist. Requires at least one missing name, and each only once.
std::string MissingNames(const std::vector<std::string>& missing, const std::vector<std::string>& there,
                         const std::string& where);

}  // namespace reshard::live

#endif  // RESHARD_CHECKPOINT_LIVE_MISSING_NAMES_H_
