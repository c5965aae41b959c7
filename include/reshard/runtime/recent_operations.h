// A flight recorder: the last operations of a communicator, for finding out what happened when one of them hangs.
#ifndef RESHARD_RUNTIME_RECENT_OPERATIONS_H_
#define RESHARD_RUNTIME_RECENT_OPERATIONS_H_

#include <cassert>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace reshard {

// A ring buffer; thread-safe. Times are microseconds since 1970 by the system clock.
class RecentOperations {
 public:
  // Remembers the last `capacity` operations. Requires capacity >= 1.
  explicit RecentOperations(size_t capacity = 256) : ring_(capacity) { assert(capacity >= 1); }

  // Records that an operation of `bytes` bytes begins, and returns its number, counted from 0. `name` is "agreement",
  // "AllToAll", ...
  int64_t Begin(absl::string_view name, int64_t bytes);
  // Records that an operation ended, with this status; ignored if the ring has already forgotten it.
  void End(int64_t number, const absl::Status& status);

  // As JSON, oldest first: [{"number":7,"operation":"AllToAll","bytes":4096,"state":"done"|"running"|"failed",
  //                 "begin_us":..,"end_us":..,"error":".."}]
  std::string ToJson() const;

 private:
  struct Entry {
    int64_t number = -1;
    std::string name;
    int64_t bytes = 0;
    int64_t begin_us = 0;
    int64_t end_us = 0;
    bool done = false;
    std::string error;
  };

  mutable std::mutex mutex_;
  std::vector<Entry> ring_;
  int64_t count_ = 0;
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_RECENT_OPERATIONS_H_
