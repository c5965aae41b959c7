// The system, and how much was read through it.
#ifndef RESHARD_TESTS_CHECKPOINT_IO_COUNTING_SYSTEM_H_
#define RESHARD_TESTS_CHECKPOINT_IO_COUNTING_SYSTEM_H_

#include <atomic>
#include <cstdint>

#include "checkpoint/io/system.h"

namespace reshard::testing {

class CountingSystem : public io::System {
 public:
  ssize_t PRead(int fd, void* data, size_t bytes, off_t at) override {
    const ssize_t got = io::System::PRead(fd, data, bytes, at);
    if (got > 0) bytes_ += got;
    ++calls_;
    return got;
  }
  int64_t TakeBytes() { return bytes_.exchange(0); }
  int64_t TakeCalls() { return calls_.exchange(0); }

 private:
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> calls_{0};
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_CHECKPOINT_IO_COUNTING_SYSTEM_H_
