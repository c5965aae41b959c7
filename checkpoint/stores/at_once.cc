#include "checkpoint/stores/at_once.h"

#include "status/share_tasks.h"

namespace reshard::stores {

absl::Status AtOnce(int64_t count, const std::function<absl::Status(int64_t)>& task, int64_t most) {
  return status::ShareTasks("asking a store", count, most, [&](int64_t i, int) { return task(i); });
}

}  // namespace reshard::stores
