#include "checkpoint/io/remove_tree.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/system.h"
#include "status/macros.h"

namespace reshard::io {
namespace {

constexpr int kDirectory = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

bool NotEmpty(int error) { return error == ENOTEMPTY || error == EEXIST; }

// The tree at `path`, whose top is open as `top`.
class Remover {
 public:
  Remover(const std::string& path, int top) : path_(path), top_(top) {}

  // Leaves the top empty.
  absl::Status Empty() {
    for (;;) {
      ASSIGN_OR_RETURN(std::vector<std::string> names, Names(top_));
      if (names.empty()) return absl::OkStatus();
      for (const std::string& name : names) {
        RETURN_IF_ERROR(RemoveEntry(name));
      }
    }
  }

 private:
  absl::Status Error(std::string_view name) const { return SystemError(errno, "remove", JoinPath(path_, name)); }

  absl::StatusOr<std::vector<std::string>> Names(int directory) const {
    // A separate open file description: nobody else moves its position, and CloseDir may close it.
    const int fd = Uninterrupted([&] { return CurrentSystem().OpenAt(directory, ".", kDirectory); });
    if (fd < 0) return SystemError(errno, "list", path_);
    DIR* const list = Uninterrupted([&] { return CurrentSystem().FdOpenDir(fd); });
    if (list == nullptr) {
      const int error = errno;
      CurrentSystem().Close(fd);
      return SystemError(error, "list", path_);
    }
    return TakeNames(list, path_);
  }

  static bool Unlink(int directory, const std::string& name, int flags) {
    return Uninterrupted([&] { return CurrentSystem().UnlinkAt(directory, name.c_str(), flags); }) == 0 ||
           errno == ENOENT;
  }

  // An entry of the top. A directory that others fill meanwhile may stay for the next round.
  absl::Status RemoveEntry(const std::string& name) {
    if (Unlink(top_, name, 0)) return absl::OkStatus();
    if (errno != EISDIR && errno != EPERM) return Error(name);
    if (Unlink(top_, name, AT_REMOVEDIR)) return absl::OkStatus();
    if (!NotEmpty(errno)) return Error(name);
    const int child = Uninterrupted([&] { return CurrentSystem().OpenAt(top_, name.c_str(), kDirectory); });
    if (child < 0) return errno == ENOENT ? absl::OkStatus() : Error(name);
    const absl::Status moved = MoveUp(child, name);
    CurrentSystem().Close(child);
    if (!moved.ok()) return moved;
    return Unlink(top_, name, AT_REMOVEDIR) || NotEmpty(errno) ? absl::OkStatus() : Error(name);
  }

  // Leaves `child` empty: removes its files, and moves the directories that are not empty to the top.
  absl::Status MoveUp(int child, const std::string& child_name) {
    ASSIGN_OR_RETURN(std::vector<std::string> names, Names(child));
    for (const std::string& name : names) {
      if (Unlink(child, name, 0)) continue;
      if (errno != EISDIR && errno != EPERM) return Error(JoinPath(child_name, name));
      if (Unlink(child, name, AT_REMOVEDIR)) continue;
      if (!NotEmpty(errno)) return Error(JoinPath(child_name, name));
      int moved;
      do {  // until a number is not the name of another entry
        const std::string number = absl::StrCat(next_++);
        moved = Uninterrupted([&] { return CurrentSystem().RenameAt(child, name.c_str(), top_, number.c_str()); });
      } while (moved != 0 && (NotEmpty(errno) || errno == ENOTDIR));
      if (moved != 0 && errno != ENOENT) return Error(JoinPath(child_name, name));
    }
    return absl::OkStatus();
  }

  const std::string& path_;
  const int top_;
  int64_t next_ = 0;
};

}  // namespace

absl::Status RemoveTree(const std::string& path) {
  if (Uninterrupted([&] { return CurrentSystem().Unlink(path.c_str()); }) == 0 || errno == ENOENT) {
    return absl::OkStatus();
  }
  const int error = errno;
  if (error != EISDIR && error != EPERM) return SystemError(error, "remove", path);
  const int top = Uninterrupted([&] { return CurrentSystem().Open(path.c_str(), kDirectory, 0); });
  if (top < 0) {
    if (errno == ENOENT) return absl::OkStatus();
    // Not a directory after all: reports why it could not be unlinked.
    return SystemError(errno == ENOTDIR || errno == ELOOP ? error : errno, "remove", path);
  }
  const absl::Status emptied = Remover(path, top).Empty();
  CurrentSystem().Close(top);
  if (!emptied.ok()) return emptied;
  if (Uninterrupted([&] { return CurrentSystem().RmDir(path.c_str()); }) == 0 || errno == ENOENT) {
    return absl::OkStatus();
  }
  return SystemError(errno, "remove", path);
}

}  // namespace reshard::io
