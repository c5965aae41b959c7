// What a conversion needs of the filesystem that its destination is on, and small files wherever they are.
#ifndef RESHARD_CHECKPOINT_FILESYSTEM_H_
#define RESHARD_CHECKPOINT_FILESYSTEM_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reshard {

// Each is OK, or says why not.
struct FilesystemFeatures {
  int64_t bytes = 0;       // of the whole filesystem
  int64_t free_bytes = 0;  // for this user
  // Files can be written, made durable together with their names, and read back. All that follows needs this; without
  // it the others say the same.
  absl::Status writes;
  // Space can be reserved before it is written. Without it, a full disk is noticed only when it fills up.
  absl::Status takes_space_ahead;
  // A directory can be renamed to a path only if nothing is there. Without it a conversion checks first, then renames.
  absl::Status renames_without_replacing;
  // Two directories can be swapped atomically. Without it nothing can be replaced (--overwrite).
  absl::Status exchanges_names;
  // Processes can exclude each other from a file. Conversions always do.
  absl::Status locks;
};

// Tries them in a new directory inside `directory`, which is removed afterwards, also after errors. Errors of the
// system: NotFound if there is no such directory.
absl::StatusOr<FilesystemFeatures> TryFilesystem(const std::string& directory);

// The whole file at a path or URL that a user gave, of at most `limit` bytes. Errors of the system or the store;
// ResourceExhausted: it has more.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, int64_t limit = int64_t{64} << 20);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_FILESYSTEM_H_
