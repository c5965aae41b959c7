// Many requests at the same time: each waits far longer than it works.
#ifndef RESHARD_CHECKPOINT_STORES_AT_ONCE_H_
#define RESHARD_CHECKPOINT_STORES_AT_ONCE_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace reshard::stores {

// Most requests that one call of AtOnce has under way.
inline constexpr int64_t kMostAtOnce = 32;

// Calls task(i) for i in 0..count, each once, up to `most` of them at the same time, lowest i first. After an error no
// further call is begun. Returns the error of the lowest i that had one; an exception in a task is Internal.
absl::Status AtOnce(int64_t count, const std::function<absl::Status(int64_t)>& task, int64_t most = kMostAtOnce);

}  // namespace reshard::stores

#endif  // RESHARD_CHECKPOINT_STORES_AT_ONCE_H_
