// Progress of long operations on checkpoints.
#ifndef RESHARD_CHECKPOINT_PROGRESS_H_
#define RESHARD_CHECKPOINT_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace reshard {

// The progress of a conversion, a comparison, a load or a save.
struct ConvertProgress {
  int64_t done = 0;         // bytes of contents that this worker or rank has read, written or compared
  int64_t total = 0;        // bytes of contents that it has to read, write or compare
  double seconds = 0.0;     // since it began
  int64_t waiting_for = 0;  // number of workers that are not done yet; only once this one is
};

// "1.50 GiB of 6.00 GiB, 512.0 MiB/s, 9 s left"
std::string ToString(const ConvertProgress& progress);

// Called with the progress of an operation. An error that it returns ends the operation with that error.
using TellProgress = std::function<absl::Status(const ConvertProgress&)>;

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_PROGRESS_H_
