// How a rank waits for something that it can only poll.
#ifndef RESHARD_RUNTIME_MPI_BACKOFF_H_
#define RESHARD_RUNTIME_MPI_BACKOFF_H_

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace reshard::mpi {

class Backoff {
 public:
  // Lets others run: at first it yields, later it sleeps, up to a fifth of a millisecond. Returns true now and then,
  // when it is worth looking at the clock.
  bool Pause() {
    if (++pauses_ < kYields) {
      sched_yield();
      return pauses_ % kLook == 0;
    }
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(2 * sleep_, kLongestSleep);
    return true;
  }

 private:
  static constexpr int kYields = 4096;
  static constexpr int kLook = 256;
  static constexpr std::chrono::microseconds kLongestSleep{200};

  int pauses_ = 0;
  std::chrono::microseconds sleep_{5};
};

}  // namespace reshard::mpi

#endif  // RESHARD_RUNTIME_MPI_BACKOFF_H_
