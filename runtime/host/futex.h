// Sleeps on a word of memory until another thread or process changes it.
#ifndef RESHARD_RUNTIME_HOST_FUTEX_H_
#define RESHARD_RUNTIME_HOST_FUTEX_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace reshard::host {

// Whether processes or only threads share the word.
enum class FutexScope { kThreads, kProcesses };

// Sleeps until the word is woken, differs from `expected`, or `left` has passed; may return early.
void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, std::chrono::nanoseconds left, FutexScope scope);
// Wakes all that sleep on it.
void FutexWakeAll(std::atomic<uint32_t>& word, FutexScope scope);

}  // namespace reshard::host

#endif  // RESHARD_RUNTIME_HOST_FUTEX_H_
