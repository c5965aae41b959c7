#include "checkpoint/io/system.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace reshard::io {

int System::Open(const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }
int System::Close(int fd) { return ::close(fd); }
ssize_t System::PRead(int fd, void* data, size_t bytes, off_t at) { return ::pread(fd, data, bytes, at); }
ssize_t System::PWrite(int fd, const void* data, size_t bytes, off_t at) { return ::pwrite(fd, data, bytes, at); }
int System::FSync(int fd) { return ::fsync(fd); }
int System::FTruncate(int fd, off_t bytes) { return ::ftruncate(fd, bytes); }
int System::FAllocate(int fd, off_t at, off_t bytes) { return ::fallocate(fd, 0, at, bytes); }
bool System::FillsTakenSpace(int fd) {
  struct statfs facts;
  return ::fstatfs(fd, &facts) == 0 && (facts.f_type == TMPFS_MAGIC || facts.f_type == RAMFS_MAGIC);
}
int System::FStat(int fd, struct stat* out) { return ::fstat(fd, out); }
ssize_t System::ReadLink(const char* path, char* target, size_t bytes) { return ::readlink(path, target, bytes); }
int System::LStat(const char* path, struct stat* out) { return ::lstat(path, out); }
int System::StatVfs(const char* path, struct statvfs* out) { return ::statvfs(path, out); }
int System::MkDir(const char* path, mode_t mode) { return ::mkdir(path, mode); }
int System::RmDir(const char* path) { return ::rmdir(path); }
int System::Unlink(const char* path) { return ::unlink(path); }
int System::Rename(const char* from, const char* to) { return ::rename(from, to); }
int System::RenameNoReplace(const char* from, const char* to) {
  return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
}
int System::RenameExchange(const char* a, const char* b) {
  return ::renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}
int System::Flock(int fd, int operation) { return ::flock(fd, operation); }
DIR* System::OpenDir(const char* path) { return ::opendir(path); }
struct dirent* System::ReadDir(DIR* directory) {
  errno = 0;
  return ::readdir(directory);
}
int System::CloseDir(DIR* directory) { return ::closedir(directory); }
int System::OpenAt(int directory, const char* name, int flags) { return ::openat(directory, name, flags); }
int System::UnlinkAt(int directory, const char* name, int flags) { return ::unlinkat(directory, name, flags); }
int System::RenameAt(int from, const char* name, int to, const char* new_name) {
  return ::renameat(from, name, to, new_name);
}
DIR* System::FdOpenDir(int fd) { return ::fdopendir(fd); }

namespace {

System* Real() {
  static System real;
  return &real;
}
System* current = nullptr;  // null: the real one

}  // namespace

System& CurrentSystem() { return current == nullptr ? *Real() : *current; }

ScopedSystem::ScopedSystem(System* system) : before_(current) { current = system; }
ScopedSystem::~ScopedSystem() { current = before_; }

}  // namespace reshard::io
