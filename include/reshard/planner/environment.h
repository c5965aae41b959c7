// The environment variables that the library reads.
#ifndef RESHARD_PLANNER_ENVIRONMENT_H_
#define RESHARD_PLANNER_ENVIRONMENT_H_

#include "absl/status/status.h"

namespace reshard {

// InvalidArgument names the first variable whose value the library cannot use, and what it takes. The library itself
// falls back to the default; the command and the Python package call this first and refuse to run.
absl::Status CheckEnvironment();

}  // namespace reshard

#endif  // RESHARD_PLANNER_ENVIRONMENT_H_
