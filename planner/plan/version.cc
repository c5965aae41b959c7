#include "reshard/planner/version.h"

namespace reshard {

const char* Version() { return RESHARD_VERSION; }

}  // namespace reshard
