// What is on the disk when others are told that it is: after a power failure only what was synced is there.
#include <fcntl.h>

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "checkpoint/io/system.h"
#include "tests/catch.h"
#include "tests/checkpoint/convert/convert_place.h"

namespace reshard {
namespace {

using testing::ConvertPlace;
using testing::ConvertSource;

std::string ParentOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Knows which files have contents, and which directories entries, that are not synced.
class SyncWatch : public io::System {
 public:
  // A worker that is alone tells nobody of its journal.
  explicit SyncWatch(bool alone) : alone_(alone) {}

  int Open(const char* path, int flags, mode_t mode) override {
    const int fd = io::System::Open(path, flags, mode);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (fd < 0) return fd;
    paths_[fd] = path;
    while (paths_[fd].back() == '/') paths_[fd].pop_back();
    if ((flags & O_EXCL) != 0) Changed(path);
    if ((flags & O_EXCL) != 0 && absl::StrContains(path, "/done-")) AboutToTell(ParentOf(path) + "/data");
    return fd;
  }
  ssize_t PWrite(int fd, const void* data, size_t bytes, off_t at) override {
    Dirty(fd);
    return io::System::PWrite(fd, data, bytes, at);
  }
  int FTruncate(int fd, off_t bytes) override {
    Dirty(fd);
    return io::System::FTruncate(fd, bytes);
  }
  int FAllocate(int fd, off_t at, off_t bytes) override {
    Dirty(fd);
    return io::System::FAllocate(fd, at, bytes);
  }
  int FSync(int fd) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    dirty_.erase(paths_[fd]);
    return 0;
  }
  int MkDir(const char* path, mode_t mode) override {
    const int made = io::System::MkDir(path, mode);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (made == 0) Changed(path);
    return made;
  }
  int RenameNoReplace(const char* from, const char* to) override {
    Renames(from);
    return io::System::RenameNoReplace(from, to);
  }
  int RenameExchange(const char* a, const char* b) override {
    Renames(a);
    return io::System::RenameExchange(a, b);
  }
  int Rename(const char* from, const char* to) override {
    // The stage, to be removed: what is in its place must surely be there.
    const std::lock_guard<std::mutex> lock(mutex_);
    if (absl::EndsWith(to, ".done") && dirty_.count(ParentOf(from)) != 0) wrong_.insert(from);
    return io::System::Rename(from, to);
  }

  // What was dirty when it should not have been.
  const std::set<std::string>& wrong() const { return wrong_; }
  int64_t told() const { return told_; }

 private:
  void Dirty(int fd) {
    const std::lock_guard<std::mutex> lock(mutex_);
    dirty_.insert(paths_[fd]);
  }
  void Changed(const std::string& path) { dirty_.insert(ParentOf(path)); }
  void Renames(const std::string& from) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!absl::EndsWith(from, "/data")) return;
    AboutToTell(from);
    for (const std::string& path : {ParentOf(from), ParentOf(from) + "/committing"}) {
      if (dirty_.count(path) != 0) wrong_.insert(path);
    }
    Changed(ParentOf(from));
  }
  // Nothing in the directory may be dirty, and of a worker's own files no journal.
  void AboutToTell(const std::string& data) {
    ++told_;
    for (const std::string& path : dirty_) {
      const bool journal = absl::StartsWith(path, ParentOf(data) + "/journal-");
      if (path == data || absl::StartsWith(path, data + "/") || (journal && !alone_)) wrong_.insert(path);
    }
  }

  const bool alone_;
  std::mutex mutex_;
  std::map<int, std::string> paths_;
  std::set<std::string> dirty_;
  std::set<std::string> wrong_;
  int64_t told_ = 0;
};

TEST_CASE("a conversion: nothing is told before it is on the disk") {
  const ConvertSource source;
  for (const CheckpointFormat format :
       {CheckpointFormat::kDcp, CheckpointFormat::kSafetensors, CheckpointFormat::kOrbax}) {
    const testing::Content expected = source.Expected({.format = format});
    for (const bool has_old : {false, true}) {
      for (const int64_t workers : {1, 2, 5}) {
        const ConvertPlace place(source, expected, {format, has_old, 2});
        for (int64_t worker = 0; worker < workers; ++worker) {
          SyncWatch watch(workers == 1);
          const io::ScopedSystem scoped(&watch);
          CHECK(place.Run(false, workers, worker).ok() == (worker == workers - 1));
          CHECK(watch.wrong() == std::set<std::string>());
          CHECK(watch.told() == (workers > 1 ? 1 : 0) + (worker == workers - 1 ? 1 : 0));
        }
        CHECK(place.IsComplete());
      }
    }
  }
}

}  // namespace
}  // namespace reshard
