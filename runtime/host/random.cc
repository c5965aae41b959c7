#include "runtime/host/random.h"

#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

namespace reshard::host {

uint64_t Random64() {
  uint64_t bits = 0;
  ssize_t got = 0;
  do {
    got = getrandom(&bits, sizeof(bits), 0);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof(bits))) return bits;
  // A kernel that lacks the call: at least no other process of this machine has the same.
  const auto now = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return now ^ (static_cast<uint64_t>(getpid()) << 40);
}

}  // namespace reshard::host
