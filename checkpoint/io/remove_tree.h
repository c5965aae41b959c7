// Removes a directory with everything in it.
#ifndef RESHARD_CHECKPOINT_IO_REMOVE_TREE_H_
#define RESHARD_CHECKPOINT_IO_REMOVE_TREE_H_

#include <string>

#include "absl/status/status.h"

namespace reshard::io {

// Removes what is at `path`: a file, a link (not what it points to), or a directory with all that is in it, however
// deep. OK when there is nothing; entries that others remove meanwhile do not matter. Never leaves the directory, even
// when others put links in place of directories meanwhile.
//
// Directories inside directories are moved up to the top before they are emptied, so that two open directories suffice
// for any depth. After an error what is left may therefore lie elsewhere in the tree than it did.
absl::Status RemoveTree(const std::string& path);

}  // namespace reshard::io

#endif  // RESHARD_CHECKPOINT_IO_REMOVE_TREE_H_
