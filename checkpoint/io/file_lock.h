// A lock that a live process holds on a file (flock). It is released when the process ends, however it ends, and
// excludes every other process that tries to take it. Locks of the same process exclude each other too.
#ifndef RESHARD_CHECKPOINT_IO_FILE_LOCK_H_
#define RESHARD_CHECKPOINT_IO_FILE_LOCK_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reshard::io {

class FileLock {
 public:
  // Creates the file when there is none. Null: somebody else holds the lock. NotFound: there is no such directory.
  static absl::StatusOr<std::unique_ptr<FileLock>> Try(const std::string& path);
  // The same, waiting for as long as somebody else holds it.
  static absl::StatusOr<std::unique_ptr<FileLock>> Wait(const std::string& path);
  // Whether somebody holds it, without taking it. False when there is no such file.
  static absl::StatusOr<bool> IsHeld(const std::string& path);

  ~FileLock();  // gives it up; the file stays
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Whether the path still names the file that is locked. A lock means nothing once its file is removed or moved, so
  // check this after waiting.
  absl::StatusOr<bool> IsInPlace() const;

 private:
  FileLock(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  static absl::StatusOr<std::unique_ptr<FileLock>> Take(const std::string& path, int open_flags, int operation);

  std::string path_;
  int fd_;
};

}  // namespace reshard::io

#endif  // RESHARD_CHECKPOINT_IO_FILE_LOCK_H_
