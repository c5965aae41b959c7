// What to say of names that are asked for and not there.
#ifndef RESHARD_CHECKPOINT_LIVE_MISSING_NAMES_H_
#define RESHARD_CHECKPOINT_LIVE_MISSING_NAMES_H_

#include <string>
#include <vector>

namespace reshard::live {

// 3 names are not in the checkpoint: "a.w" (did you mean "a.W"?), "b", "c"; all are there with the prefix "model."
// `where` is "the checkpoint". Names the first ten, and the nearest name of the first three. Requires missing names;
// each of them once.
std::string MissingNames(const std::vector<std::string>& missing, const std::vector<std::string>& there,
                         const std::string& where);

}  // namespace reshard::live

#endif  // RESHARD_CHECKPOINT_LIVE_MISSING_NAMES_H_
