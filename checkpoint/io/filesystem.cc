#include "reshard/checkpoint/filesystem.h"

#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/file_lock.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/remove_tree.h"
#include "checkpoint/io/system.h"
#include "status/macros.h"

namespace reshard {
namespace {

constexpr std::string_view kContent = "reshard";

template <typename Call>
absl::Status Tried(Call call, std::string_view what, const std::string& path) {
  return io::Uninterrupted(call) == 0 ? absl::OkStatus() : io::SystemError(errno, what, path);
}

absl::Status TryToWrite(const std::string& place) {
  const std::string path = io::JoinPath(place, "file");
  ASSIGN_OR_RETURN(const std::unique_ptr<io::WriteFile> out, io::WriteFile::Create(path));
  RETURN_IF_ERROR(out->WriteAt(0, kContent));
  RETURN_IF_ERROR(out->Sync());
  RETURN_IF_ERROR(out->Close());
  RETURN_IF_ERROR(io::SyncDirectory(place));
  ASSIGN_OR_RETURN(const std::unique_ptr<io::ReadFile> in, io::ReadFile::Open(path));
  ASSIGN_OR_RETURN(const std::string read, in->ReadText(0, in->bytes()));
  return read == kContent ? absl::OkStatus()
                          : absl::DataLossError(absl::StrCat(path, " does not have what was written"));
}

absl::Status TryToTakeSpace(const std::string& place) {
  const std::string path = io::JoinPath(place, "file");
  const int fd = io::Uninterrupted([&] { return io::CurrentSystem().Open(path.c_str(), O_WRONLY | O_CLOEXEC, 0); });
  if (fd < 0) return io::SystemError(errno, "open", path);
  const absl::Status taken = Tried([&] { return io::CurrentSystem().FAllocate(fd, 0, 4096); }, "take space for", path);
  io::CurrentSystem().Close(fd);
  return taken;
}

// With directories, as a conversion does it.
absl::Status TryToRename(const std::string& place) {
  const std::string from = io::JoinPath(place, "from"), to = io::JoinPath(place, "to");
  RETURN_IF_ERROR(Tried([&] { return io::CurrentSystem().MkDir(from.c_str(), 0700); }, "make", from));
  return Tried([&] { return io::CurrentSystem().RenameNoReplace(from.c_str(), to.c_str()); }, "rename only once", from);
}

absl::Status TryToExchange(const std::string& place) {
  const std::string a = io::JoinPath(place, "a"), b = io::JoinPath(place, "b");
  for (const std::string& path : {a, b}) {
    RETURN_IF_ERROR(Tried([&] { return io::CurrentSystem().MkDir(path.c_str(), 0700); }, "make", path));
  }
  return Tried([&] { return io::CurrentSystem().RenameExchange(a.c_str(), b.c_str()); }, "exchange names in", place);
}

absl::Status TryToLock(const std::string& place) {
  const std::string path = io::JoinPath(place, "lock");
  ASSIGN_OR_RETURN(const std::unique_ptr<io::FileLock> lock, io::FileLock::Try(path));
  ASSIGN_OR_RETURN(const bool held, io::FileLock::IsHeld(path));
  return lock != nullptr && held
             ? absl::OkStatus()
             : absl::UnavailableError(absl::StrCat("a lock on ", path, " does not exclude other processes"));
}

}  // namespace

absl::StatusOr<FilesystemFeatures> TryFilesystem(const std::string& directory) {
  ASSIGN_OR_RETURN(const io::FileKind kind, io::KindOf(io::JoinPath(directory, ".")));
  if (kind != io::FileKind::kDirectory) return absl::NotFoundError(absl::StrCat("there is no directory ", directory));
  FilesystemFeatures features;
  struct statvfs space;
  if (io::Uninterrupted([&] { return io::CurrentSystem().StatVfs(directory.c_str(), &space); }) != 0) {
    return io::SystemError(errno, "check the free space of", directory);
  }
  features.bytes = static_cast<int64_t>(space.f_blocks) * static_cast<int64_t>(space.f_frsize);
  features.free_bytes = static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);

  const std::string place = io::JoinPath(directory, absl::StrCat(".reshard-doctor-", getpid()));
  features.writes = Tried([&] { return io::CurrentSystem().MkDir(place.c_str(), 0700); }, "make", place);
  if (!features.writes.ok()) {
    for (absl::Status* const other : {&features.takes_space_ahead, &features.renames_without_replacing,
                                      &features.exchanges_names, &features.locks}) {
      *other = features.writes;
    }
    return features;
  }
  features.writes = TryToWrite(place);
  features.takes_space_ahead = features.writes.ok() ? TryToTakeSpace(place) : features.writes;
  features.renames_without_replacing = TryToRename(place);
  features.exchanges_names = TryToExchange(place);
  features.locks = TryToLock(place);
  RETURN_IF_ERROR(io::RemoveTree(place));
  return features;
}

}  // namespace reshard
