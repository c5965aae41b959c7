// Small files that are written in one go.
#ifndef RESHARD_CHECKPOINT_IO_WHOLE_FILE_H_
#define RESHARD_CHECKPOINT_IO_WHOLE_FILE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace reshard::io {

// Removes what is at `path`, and writes a new file there. Its bytes are then on the disk; its name is once the caller
// has synced the directory. Errors of the system.
absl::Status WriteWholeFile(const std::string& path, std::string_view bytes);

}  // namespace reshard::io

#endif  // RESHARD_CHECKPOINT_IO_WHOLE_FILE_H_
