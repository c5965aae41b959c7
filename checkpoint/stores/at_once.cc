#include "checkpoint/stores/at_once.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <system_error>
#include <thread>
#include <vector>

#include "status/mutex.h"
#include "status/no_throw.h"

namespace reshard::stores {
namespace {

struct Shared {
  std::atomic<int64_t> next{0};
  status::Mutex mutex;
  int64_t failed ABSL_GUARDED_BY(mutex) = std::numeric_limits<int64_t>::max();
  absl::Status status ABSL_GUARDED_BY(mutex);
};

}  // namespace

absl::Status AtOnce(int64_t count, const std::function<absl::Status(int64_t)>& task, int64_t most) {
  Shared shared;
  const auto work = [&] {
    for (int64_t i = 0; (i = shared.next.fetch_add(1)) < count;) {
      const absl::Status done = status::NoThrow("a request to a store", [&] { return task(i); });
      if (done.ok()) continue;
      shared.next = count;
      const status::MutexLock lock(shared.mutex);
      if (i < shared.failed) {
        shared.failed = i;
        shared.status = done;
      }
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int64_t t = 1; t < std::min(count, most); ++t) threads.emplace_back(work);
  } catch (const std::system_error&) {  // fewer do, too
  }
  work();
  for (std::thread& thread : threads) thread.join();
  const status::MutexLock lock(shared.mutex);
  return shared.status;
}

}  // namespace reshard::stores
