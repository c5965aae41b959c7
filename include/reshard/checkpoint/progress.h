// Progress of long operations on checkpoints.
#ifndef RESHARD_CHECKPOINT_PROGRESS_H_
#define RESHARD_CHECKPOINT_PROGRESS_H_

#include <cstdint>

namespace reshard {

// How far a conversion or a comparison is.
struct ConvertProgress {
  int64_t done = 0;         // bytes of contents that this worker has written, or compared
  int64_t total = 0;        // bytes of contents that it has to write, or to compare
  double seconds = 0.0;     // since it began
  int64_t waiting_for = 0;  // number of workers that are not done yet; only once this one is
};

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_PROGRESS_H_
