// The version of the library, as the command prints it and every JSON object carries it.
#ifndef RESHARD_PLANNER_VERSION_H_
#define RESHARD_PLANNER_VERSION_H_

namespace reshard {

const char* Version();  // "0.3.0"

}  // namespace reshard

#endif  // RESHARD_PLANNER_VERSION_H_
