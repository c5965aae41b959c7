// The system calls that the checkpoint code makes, in one table, so that tests can make the n-th of them fail. Nothing
// else in checkpoint/ makes system calls.
#ifndef RESHARD_CHECKPOINT_IO_SYSTEM_H_
#define RESHARD_CHECKPOINT_IO_SYSTEM_H_

#include <dirent.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <type_traits>

namespace reshard::io {

// As the calls of the same name: -1 (null) and errno on failure.
class System {
 public:
  virtual ~System() = default;
  virtual int Open(const char* path, int flags, mode_t mode);
  virtual int Close(int fd);
  virtual ssize_t PRead(int fd, void* data, size_t bytes, off_t at);
  virtual ssize_t PWrite(int fd, const void* data, size_t bytes, off_t at);
  virtual int FSync(int fd);
  virtual int FTruncate(int fd, off_t bytes);
  virtual int FAllocate(int fd, off_t at, off_t bytes);  // fallocate(2): takes space, writes nothing
  // Whether taking space fills it with zeros at once, since the file is in memory: as much work as writing it.
  virtual bool FillsTakenSpace(int fd);
  virtual int FStat(int fd, struct stat* out);
  virtual int LStat(const char* path, struct stat* out);
  virtual ssize_t ReadLink(const char* path, char* target, size_t bytes);
  virtual int StatVfs(const char* path, struct statvfs* out);
  virtual int MkDir(const char* path, mode_t mode);
  virtual int RmDir(const char* path);
  virtual int Unlink(const char* path);
  virtual int Rename(const char* from, const char* to);
  virtual int RenameNoReplace(const char* from, const char* to);  // renameat2(RENAME_NOREPLACE)
  virtual int RenameExchange(const char* a, const char* b);       // renameat2(RENAME_EXCHANGE)
  virtual int Flock(int fd, int operation);
  virtual DIR* OpenDir(const char* path);
  virtual struct dirent* ReadDir(DIR* directory);  // null with errno 0 at the end
  virtual int CloseDir(DIR* directory);
  // Relative to an open directory: others may change what its path leads to, but not the directory itself.
  virtual int OpenAt(int directory, const char* name, int flags);
  virtual int UnlinkAt(int directory, const char* name, int flags);
  virtual int RenameAt(int from, const char* name, int to, const char* new_name);
  virtual DIR* FdOpenDir(int fd);  // CloseDir then closes fd too
};

// The system in use: the real one unless a test put another in its place.
System& CurrentSystem();

// Repeats `call` for as long as a signal interrupts it, and returns its result.
template <typename Call>
auto Uninterrupted(Call call) {
  for (;;) {
    const auto result = call();
    if constexpr (std::is_pointer_v<decltype(call())>) {
      if (result != nullptr || errno != EINTR) return result;
    } else {
      if (result >= 0 || errno != EINTR) return result;
    }
  }
}

// For tests: puts `system` in place until destroyed. Not while other threads are in checkpoint code.
class ScopedSystem {
 public:
  explicit ScopedSystem(System* system);
  ~ScopedSystem();
  ScopedSystem(const ScopedSystem&) = delete;
  ScopedSystem& operator=(const ScopedSystem&) = delete;

 private:
  System* before_;
};

}  // namespace reshard::io

#endif  // RESHARD_CHECKPOINT_IO_SYSTEM_H_
