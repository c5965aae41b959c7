// A system in which things go wrong at a chosen place, and which counts what is left open.
#ifndef RESHARD_TESTS_CHECKPOINT_IO_FAULTS_H_
#define RESHARD_TESTS_CHECKPOINT_IO_FAULTS_H_

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <type_traits>
#include <utility>

#include "checkpoint/io/system.h"

namespace reshard::testing {

enum class Call {
  kOpen,
  kClose,
  kPRead,
  kPWrite,
  kFSync,
  kFTruncate,
  kFAllocate,
  kFStat,
  kLStat,
  kReadLink,
  kStatVfs,
  kMkDir,
  kRmDir,
  kUnlink,
  kRename,
  kRenameNoReplace,
  kRenameExchange,
  kFlock,
  kOpenDir,
  kReadDir,
  kCloseDir,
  kOpenAt,
  kUnlinkAt,
  kRenameAt,
  kFdOpenDir,
};

struct Fault {
  enum Kind {
    kFails,         // with `error`; nothing happens (a close happens all the same, as on Linux)
    kDoneButFails,  // it happens, and then `error` is reported
    kOneByte,       // reads and writes move one byte; other calls go well
    kHalf,          // reads and writes move half of what was asked
    kCrash,         // half of a write happens, nothing of another call; then the process is as good as gone: no later
                    // call has an effect, and all fail with EIO (but what it had open is closed)
  };

  Kind kind = kFails;
  int64_t at = 0;  // the at-th of `calls`, from 0
  int error = EIO;
  std::set<Call> calls = {};  // empty: all calls
  bool onwards = false;       // and all after it
};

// Passes everything on to the real system but for the fault, and for syncs, which are counted only: what they do shows
// after a power failure, not after the death of a process. From any number of threads.
class FaultySystem : public io::System {
 public:
  FaultySystem() = default;
  explicit FaultySystem(Fault fault) : fault_(std::move(fault)), faulty_(true) {}

  // How many of the fault's calls (all calls without a fault) were made.
  int64_t calls() const { return count_; }
  // The fault's turn has come.
  bool happened() const { return faulty_ && count_ > fault_.at; }
  // Descriptors and directories that were opened through this and not closed.
  size_t open() const { return descriptors_.size() + directories_.size(); }
  // Called after every call, whatever came of it.
  void AfterEachCall(std::function<void(Call)> look) { look_ = std::move(look); }

  int Open(const char* path, int flags, mode_t mode) override {
    return Opened(Do(Call::kOpen, [&] { return io::System::Open(path, flags, mode); }));
  }
  int Close(int fd) override {
    Forget(&descriptors_, fd);
    const int closed = io::System::Close(fd);
    return Do(Call::kClose, [&] { return closed; });
  }
  ssize_t PRead(int fd, void* data, size_t bytes, off_t at) override {
    return Transfer(Call::kPRead, bytes, [&](size_t most) { return io::System::PRead(fd, data, most, at); });
  }
  ssize_t PWrite(int fd, const void* data, size_t bytes, off_t at) override {
    return Transfer(Call::kPWrite, bytes, [&](size_t most) { return io::System::PWrite(fd, data, most, at); });
  }
  int FSync(int) override {
    return Do(Call::kFSync, [] { return 0; });
  }
  int FTruncate(int fd, off_t bytes) override {
    return Do(Call::kFTruncate, [&] { return io::System::FTruncate(fd, bytes); });
  }
  int FAllocate(int fd, off_t at, off_t bytes) override {
    return Do(Call::kFAllocate, [&] { return io::System::FAllocate(fd, at, bytes); });
  }
  // As on a disk, wherever the test is.
  bool FillsTakenSpace(int) override { return false; }
  int FStat(int fd, struct stat* out) override {
    return Do(Call::kFStat, [&] { return io::System::FStat(fd, out); });
  }
  int LStat(const char* path, struct stat* out) override {
    return Do(Call::kLStat, [&] { return io::System::LStat(path, out); });
  }
  ssize_t ReadLink(const char* path, char* target, size_t bytes) override {
    return Do(Call::kReadLink, [&] { return io::System::ReadLink(path, target, bytes); });
  }
  int StatVfs(const char* path, struct statvfs* out) override {
    return Do(Call::kStatVfs, [&] { return io::System::StatVfs(path, out); });
  }
  int MkDir(const char* path, mode_t mode) override {
    return Do(Call::kMkDir, [&] { return io::System::MkDir(path, mode); });
  }
  int RmDir(const char* path) override {
    return Do(Call::kRmDir, [&] { return io::System::RmDir(path); });
  }
  int Unlink(const char* path) override {
    return Do(Call::kUnlink, [&] { return io::System::Unlink(path); });
  }
  int Rename(const char* from, const char* to) override {
    return Do(Call::kRename, [&] { return io::System::Rename(from, to); });
  }
  int RenameNoReplace(const char* from, const char* to) override {
    return Do(Call::kRenameNoReplace, [&] { return io::System::RenameNoReplace(from, to); });
  }
  int RenameExchange(const char* a, const char* b) override {
    return Do(Call::kRenameExchange, [&] { return io::System::RenameExchange(a, b); });
  }
  int Flock(int fd, int operation) override {
    return Do(Call::kFlock, [&] { return io::System::Flock(fd, operation); });
  }
  DIR* OpenDir(const char* path) override {
    return OpenedDirectory(Do(Call::kOpenDir, [&] { return io::System::OpenDir(path); }));
  }
  struct dirent* ReadDir(DIR* directory) override {
    return Do(Call::kReadDir, [&] { return io::System::ReadDir(directory); });
  }
  int CloseDir(DIR* directory) override {
    Forget(&directories_, directory);
    const int closed = io::System::CloseDir(directory);
    return Do(Call::kCloseDir, [&] { return closed; });
  }
  int OpenAt(int directory, const char* name, int flags) override {
    return Opened(Do(Call::kOpenAt, [&] { return io::System::OpenAt(directory, name, flags); }));
  }
  int UnlinkAt(int directory, const char* name, int flags) override {
    return Do(Call::kUnlinkAt, [&] { return io::System::UnlinkAt(directory, name, flags); });
  }
  int RenameAt(int from, const char* name, int to, const char* new_name) override {
    return Do(Call::kRenameAt, [&] { return io::System::RenameAt(from, name, to, new_name); });
  }
  DIR* FdOpenDir(int fd) override {
    DIR* const directory = OpenedDirectory(Do(Call::kFdOpenDir, [&] { return io::System::FdOpenDir(fd); }));
    if (directory != nullptr) Forget(&descriptors_, fd);
    return directory;
  }

 private:
  enum class Turn { kWell, kFault, kGone };

  // Counts the call, and says how it goes.
  Turn Next(Call call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!faulty_) return ++count_, Turn::kWell;
    if (fault_.kind == Fault::kCrash && count_ > fault_.at) return Turn::kGone;
    if (!fault_.calls.empty() && fault_.calls.count(call) == 0) return Turn::kWell;
    const int64_t turn = count_++;
    return turn == fault_.at || (fault_.onwards && turn > fault_.at) ? Turn::kFault : Turn::kWell;
  }

  void After(Call call) {
    const int error = errno;
    if (look_) look_(call);
    errno = error;
  }

  // What a failed call returns: -1 or null.
  template <typename Result>
  static Result Failed() {
    if constexpr (std::is_pointer_v<Result>) {
      return nullptr;
    } else {
      return -1;
    }
  }

  template <typename Real>
  auto Do(Call call, Real real) -> decltype(real()) {
    decltype(real()) result = Failed<decltype(real())>();
    const Turn turn = Next(call);
    if (turn == Turn::kWell || fault_.kind == Fault::kOneByte || fault_.kind == Fault::kHalf) {
      result = real();
    } else {
      if (fault_.kind == Fault::kDoneButFails) real();
      errno = fault_.kind == Fault::kCrash ? EIO : fault_.error;
    }
    After(call);
    return result;
  }

  template <typename Real>
  ssize_t Transfer(Call call, size_t bytes, Real real) {
    ssize_t result = -1;
    const Turn turn = Next(call);
    if (turn == Turn::kWell) {
      result = real(bytes);
    } else if (fault_.kind == Fault::kOneByte) {
      result = real(std::min<size_t>(bytes, 1));
    } else if (fault_.kind == Fault::kHalf) {
      result = real((bytes + 1) / 2);
    } else {
      if (fault_.kind == Fault::kDoneButFails) real(bytes);
      if (fault_.kind == Fault::kCrash && turn == Turn::kFault && call == Call::kPWrite) real(bytes / 2);
      errno = fault_.kind == Fault::kCrash ? EIO : fault_.error;
    }
    After(call);
    return result;
  }

  int Opened(int fd) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (fd >= 0) descriptors_.insert(fd);
    return fd;
  }
  DIR* OpenedDirectory(DIR* directory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (directory != nullptr) directories_.insert(directory);
    return directory;
  }
  template <typename Thing>
  void Forget(std::set<Thing>* things, Thing thing) {
    const std::lock_guard<std::mutex> lock(mutex_);
    things->erase(thing);
  }

  Fault fault_;
  bool faulty_ = false;
  std::mutex mutex_;
  int64_t count_ = 0;
  std::set<int> descriptors_;
  std::set<DIR*> directories_;
  std::function<void(Call)> look_;
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_CHECKPOINT_IO_FAULTS_H_
