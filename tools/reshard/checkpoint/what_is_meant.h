// Says which checkpoint is read where another one than the path that was given.
#ifndef RESHARD_TOOLS_RESHARD_CHECKPOINT_WHAT_IS_MEANT_H_
#define RESHARD_TOOLS_RESHARD_CHECKPOINT_WHAT_IS_MEANT_H_

#include <string>

namespace reshard::tool {

// Notes on stderr that the file at `path` is only a part of a checkpoint, and which one is read instead; nothing where
// what is at the path is read.
void SayWhatIsMeant(const std::string& path);

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_CHECKPOINT_WHAT_IS_MEANT_H_
