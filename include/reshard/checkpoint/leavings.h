// What interrupted conversions have left beside a destination, or in it where that is in a store.
#ifndef RESHARD_CHECKPOINT_LEAVINGS_H_
#define RESHARD_CHECKPOINT_LEAVINGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reshard {

// The private directory of one job, beside its destination; in a store a folder in it, and the objects that the job
// has written so far.
struct StaleStaging {
  std::string job;     // its name
  std::string path;    // of the directory
  bool alive = false;  // a process is at work in it
};

// All of `destination`, sorted by path. In a store that takes some seconds if there are any: a live job is recognized
// by a change. Errors of the system; InvalidArgument: `destination` does not name an entry of a directory.
absl::StatusOr<std::vector<StaleStaging>> FindStaleStaging(const std::string& destination);

// Removes those in which no process is at work, and returns how many; live ones stay, and so do the contents of a
// checkpoint at the destination. Errors of the system.
absl::StatusOr<int> RemoveStaleStaging(const std::string& destination);

// The names that these had before 0.3.
using Leaving [[deprecated("StaleStaging")]] = StaleStaging;
[[deprecated("FindStaleStaging")]] inline absl::StatusOr<std::vector<StaleStaging>> FindLeavings(
    const std::string& destination) {
  return FindStaleStaging(destination);
}
[[deprecated("RemoveStaleStaging")]] inline absl::StatusOr<int> RemoveLeavings(const std::string& destination) {
  return RemoveStaleStaging(destination);
}

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_LEAVINGS_H_
