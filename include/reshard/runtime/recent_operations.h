// The last operations of a communicator, for the moment when one of them does not come back.
#ifndef RESHARD_RUNTIME_RECENT_OPERATIONS_H_
#define RESHARD_RUNTIME_RECENT_OPERATIONS_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace reshard {

// A ring; thread-safe. Times are microseconds of the system clock since 1970.
class RecentOperations {
 public:
  explicit RecentOperations(size_t capacity = 256) : ring_(capacity) {}

  // An operation begins; returns its number, counted from 0. `name` is "agreement", "AllToAll", ...
  int64_t Begin(absl::string_view name, int64_t bytes);
  // It ended; ignored when the ring has forgotten it.
  void End(int64_t number, const absl::Status& status);

  // Oldest first: [{"number":7,"operation":"AllToAll","bytes":4096,"state":"done"|"running"|"failed",
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
