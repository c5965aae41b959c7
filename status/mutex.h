// Mutexes whose use Clang checks: a member names the mutex that guards it, a function the one that it needs.
//
//   mutable Mutex mutex_;
//   int64_t heartbeats_ ABSL_GUARDED_BY(mutex_) = 0;
//
// Over std::mutex and not absl::Mutex: ThreadSanitizer sees only what is built with it, and Abseil comes as it is.
#ifndef RESHARD_STATUS_MUTEX_H_
#define RESHARD_STATUS_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace reshard::status {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }

 private:
  friend class Changes;
  std::mutex mutex_;
};

// Holds the mutex while it lives.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_.Lock(); }
  // Takes over a mutex that the caller has locked.
  MutexLock(Mutex& mutex, std::adopt_lock_t) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) : mutex_(mutex) {}
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Wakes the threads that wait for a condition on what a mutex guards. `holds()` is called with the mutex held; a lambda
// that reads what it guards must be annotated with ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_).
class Changes {
 public:
  void Announce() { changed_.notify_all(); }
  template <typename Condition>
  void Wait(Mutex& mutex, const Condition& holds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Adopted lock(mutex.mutex_);
    // Not wait(): binaries that call it need the libstdc++ of GCC 12, and wheels a newer system.
    while (!changed_.wait_for(lock.lock, std::chrono::hours(1), holds)) {
    }
  }
  // Returns after `longest` even if it does not hold.
  template <typename Rep, typename Period, typename Condition>
  void WaitFor(Mutex& mutex, std::chrono::duration<Rep, Period> longest, const Condition& holds)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Adopted lock(mutex.mutex_);
    changed_.wait_for(lock.lock, longest, holds);
  }

 private:
  // A lock of a mutex that the caller holds, before and after.
  struct Adopted {
    explicit Adopted(std::mutex& mutex) : lock(mutex, std::adopt_lock) {}
    ~Adopted() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };
  std::condition_variable changed_;
};

}  // namespace reshard::status

#endif  // RESHARD_STATUS_MUTEX_H_
