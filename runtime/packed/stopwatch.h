// A stopwatch for where the time of a step goes.
#ifndef RESHARD_RUNTIME_PACKED_STOPWATCH_H_
#define RESHARD_RUNTIME_PACKED_STOPWATCH_H_

#include <chrono>

namespace reshard::packed {

// Adds the time since the last call to one of the fields of MoveStats.
class Stopwatch {
 public:
  void operator()(double* account) {
    const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
    *account += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace reshard::packed

#endif  // RESHARD_RUNTIME_PACKED_STOPWATCH_H_
