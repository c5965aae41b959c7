#include "checkpoint/io/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "checkpoint/io/files.h"
#include "checkpoint/io/system.h"

namespace reshard::io {

absl::StatusOr<std::unique_ptr<FileLock>> FileLock::Take(const std::string& path, int open_flags, int operation) {
  const int fd = Uninterrupted(
      [&] { return CurrentSystem().Open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | open_flags, 0666); });
  if (fd < 0) return SystemError(errno, "open", path);
  std::unique_ptr<FileLock> lock(new FileLock(path, fd));
  if (Uninterrupted([&] { return CurrentSystem().Flock(fd, operation); }) != 0) {
    if (errno == EWOULDBLOCK) return nullptr;
    return SystemError(errno, "lock", path);
  }
  return lock;
}

absl::StatusOr<std::unique_ptr<FileLock>> FileLock::Try(const std::string& path) {
  return Take(path, O_CREAT, LOCK_EX | LOCK_NB);
}

absl::StatusOr<std::unique_ptr<FileLock>> FileLock::Wait(const std::string& path) {
  return Take(path, O_CREAT, LOCK_EX);
}

absl::StatusOr<bool> FileLock::IsHeld(const std::string& path) {
  absl::StatusOr<std::unique_ptr<FileLock>> lock = Take(path, 0, LOCK_EX | LOCK_NB);
  if (absl::IsNotFound(lock.status())) return false;
  if (!lock.ok()) return lock.status();
  return *lock == nullptr;
}

FileLock::~FileLock() { CurrentSystem().Close(fd_); }

absl::StatusOr<bool> FileLock::IsInPlace() const {
  struct stat held, named;
  if (Uninterrupted([&] { return CurrentSystem().FStat(fd_, &held); }) != 0)
    return SystemError(errno, "look at", path_);
  if (Uninterrupted([&] { return CurrentSystem().LStat(path_.c_str(), &named); }) != 0) {
    if (errno == ENOENT) return false;
    return SystemError(errno, "look at", path_);
  }
  return held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

}  // namespace reshard::io
