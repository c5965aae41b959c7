// Says which checkpoint is read if it is not the path that was given.
#ifndef RESHARD_TOOLS_RESHARD_CHECKPOINT_WHAT_IS_MEANT_H_
#define RESHARD_TOOLS_RESHARD_CHECKPOINT_WHAT_IS_MEANT_H_

#include <string>

namespace reshard::tool {

// If the file at `path` is only a part of a checkpoint, notes so on stderr, and which checkpoint is read instead.
// Otherwise prints nothing.
void SayWhatIsMeant(const std::string& path);

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_CHECKPOINT_WHAT_IS_MEANT_H_
