// The version of the library, as printed by the command and in every JSON object.
#ifndef RESHARD_PLANNER_VERSION_H_
#define RESHARD_PLANNER_VERSION_H_

namespace reshard {

const char* Version();  // "0.1.0"

}  // namespace reshard

#endif  // RESHARD_PLANNER_VERSION_H_
