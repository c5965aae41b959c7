#include "runtime/host/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace reshard::host {
namespace {

int Operation(int operation, FutexScope scope) {
  return scope == FutexScope::kThreads ? operation | FUTEX_PRIVATE_FLAG : operation;
}

}  // namespace

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, std::chrono::nanoseconds left, FutexScope scope) {
  const auto capped = std::min<std::chrono::nanoseconds>(left, std::chrono::seconds(60));
  timespec timeout{};
  timeout.tv_sec = capped.count() / 1000000000;
  timeout.tv_nsec = capped.count() % 1000000000;
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), Operation(FUTEX_WAIT, scope), expected, &timeout, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word, FutexScope scope) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), Operation(FUTEX_WAKE, scope), 0x7FFFFFFF, nullptr, nullptr, 0);
}

}  // namespace reshard::host
