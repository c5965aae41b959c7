#include "checkpoint/io/files.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/error_kind.h"
#include "checkpoint/io/remote_file.h"
#include "checkpoint/io/show.h"
#include "checkpoint/io/system.h"
#include "checkpoint/stores/at_once.h"
#include "checkpoint/stores/url.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::io {
namespace {

// Linux moves at most a little less than 2 GiB a call; a round number below it keeps later calls aligned.
constexpr int64_t kMostAtOnce = int64_t{1} << 30;

// Retries for as long as a signal interrupts it. Nonblocking, so that a pipe that somebody put in place of a file does
// not block the caller; regular files are not affected.
int OpenRetrying(const std::string& path, int flags, mode_t mode) {
  return Uninterrupted([&] { return CurrentSystem().Open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, mode); });
}

class SystemFile : public ReadFile {
 public:
  SystemFile(const std::string& path, int fd, int64_t bytes, int64_t modified, std::atomic<int64_t>* count)
      : ReadFile(path, bytes, modified), fd_(fd), count_(count) {}
  ~SystemFile() override { CurrentSystem().Close(fd_); }
  absl::Status ReadAt(int64_t at, absl::Span<char> out) const override;

 private:
  int fd_;
  std::atomic<int64_t>* count_;
};

absl::Status EndsBefore(const ReadFile& file, int64_t end, int64_t at, absl::Span<const char> out) {
  return absl::DataLossError(absl::StrCat(file.path(), " ends at byte ", end, "; bytes ", at, " to ",
                                          at + static_cast<int64_t>(out.size()), " were wanted"));
}

absl::Status SystemFile::ReadAt(int64_t at, absl::Span<char> out) const {
  size_t done = 0;
  while (done < out.size()) {
    const size_t ask = std::min<size_t>(out.size() - done, kMostAtOnce);
    const ssize_t got = CurrentSystem().PRead(fd_, out.data() + done, ask, at + static_cast<int64_t>(done));
    if (got < 0) {
      if (errno == EINTR) continue;
      return SystemError(errno, "read", path());
    }
    if (got == 0) return EndsBefore(*this, at + static_cast<int64_t>(done), at, out);
    done += static_cast<size_t>(got);
    if (count_ != nullptr) count_->fetch_add(got, std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

class BytesFile : public ReadFile {
 public:
  BytesFile(std::string path, std::shared_ptr<const std::string> content)
      : ReadFile(std::move(path), static_cast<int64_t>(content->size()), 0), content_(std::move(content)) {}

  absl::Status ReadAt(int64_t at, absl::Span<char> out) const override {
    if (at < 0 || at > bytes() || static_cast<int64_t>(out.size()) > bytes() - at) {
      return EndsBefore(*this, bytes(), at, out);
    }
    if (!out.empty()) std::memcpy(out.data(), content_->data() + at, out.size());
    return absl::OkStatus();
  }

 private:
  std::shared_ptr<const std::string> content_;
};

class FilePart : public ReadFile {
 public:
  FilePart(const ReadFile& file, int64_t at, int64_t length)
      : ReadFile(file.path(), length, file.modified()), file_(file), at_(at) {}

  int64_t gap() const override { return file_.gap(); }
  int64_t most() const override { return file_.most(); }
  absl::Status ReadAt(int64_t at, absl::Span<char> out) const override {
    if (at < 0 || at > bytes() || static_cast<int64_t>(out.size()) > bytes() - at) {
      return EndsBefore(*this, bytes(), at, out);
    }
    return file_.ReadAt(at_ + at, out);
  }

 private:
  const ReadFile& file_;
  const int64_t at_;
};

}  // namespace

absl::Status SystemError(int error, std::string_view what, std::string_view path) {
  const std::string message =
      absl::StrCat("cannot ", status::View(what), " ", status::View(path), ": ", std::strerror(error));
  // The last two: a path at which nothing can be.
  if (error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG) return absl::NotFoundError(message);
  // A full disk, which must not look like a limit on memory.
  if (error == ENOSPC || error == EDQUOT) return FromSystem(absl::ResourceExhaustedError(message));
  return absl::UnavailableError(message);
}

absl::StatusOr<std::unique_ptr<ReadFile>> ReadFile::Open(const std::string& path, bool follow_links,
                                                         std::atomic<int64_t>* count) {
  if (stores::IsUrl(path)) return OpenRemote(path, count);
  const int fd = OpenRetrying(path, O_RDONLY | (follow_links ? 0 : O_NOFOLLOW), 0);
  if (fd < 0) {
    const int error = errno;
    if (error == ELOOP && !follow_links) return absl::DataLossError(absl::StrCat(path, " is a symbolic link"));
    return SystemError(error, "open", path);
  }
  struct stat facts;
  if (Uninterrupted([&] { return CurrentSystem().FStat(fd, &facts); }) != 0) {
    const int error = errno;
    CurrentSystem().Close(fd);
    return SystemError(error, "look at", path);
  }
  if (!S_ISREG(facts.st_mode)) {
    CurrentSystem().Close(fd);
    return absl::DataLossError(absl::StrCat(path, " is not a regular file"));
  }
  // Unsigned: a made-up time may be far away, and only has to differ from the one before.
  const uint64_t modified =
      static_cast<uint64_t>(facts.st_mtim.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(facts.st_mtim.tv_nsec);
  return std::make_unique<SystemFile>(path, fd, facts.st_size, static_cast<int64_t>(modified), count);
}

std::unique_ptr<ReadFile> ReadFile::OfBytes(std::string path, std::shared_ptr<const std::string> bytes) {
  return std::make_unique<BytesFile>(std::move(path), std::move(bytes));
}

std::unique_ptr<ReadFile> ReadFile::PartOf(const ReadFile& file, int64_t at, int64_t length) {
  return std::make_unique<FilePart>(file, at, length);
}

absl::Status ReadFile::CheckSize(int64_t limit) const {
  if (bytes_ <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(path(), " has ", bytes(), " bytes; at most ", limit, " are allowed"));
}

absl::StatusOr<std::string> ReadFile::ReadAll(int64_t limit) const {
  RETURN_IF_ERROR(CheckSize(limit));
  return ReadText(0, bytes_);
}

absl::StatusOr<std::string> ReadFile::ReadText(int64_t at, int64_t length) const {
  constexpr int64_t kAtOnce = int64_t{8} << 20;
  std::string text;
  for (int64_t done = 0; done < length;) {
    const int64_t part = std::min(kAtOnce, length - done);
    text.resize(done + part);
    RETURN_IF_ERROR(ReadAt(at + done, {text.data() + done, static_cast<size_t>(part)}));
    done += part;
  }
  return text;
}

absl::StatusOr<std::unique_ptr<WriteFile>> WriteFile::Create(const std::string& path, int64_t bytes) {
  const int fd = OpenRetrying(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (fd < 0) {
    const int error = errno;
    if (error == EEXIST) return absl::AlreadyExistsError(absl::StrCat(path, " already exists"));
    return SystemError(error, "create", path);
  }
  std::unique_ptr<WriteFile> file(new WriteFile(path, fd));
  if (bytes > 0 && !CurrentSystem().FillsTakenSpace(fd)) {
    const int taken = Uninterrupted([&] { return CurrentSystem().FAllocate(fd, 0, bytes); });
    // A filesystem that cannot take space ahead takes it as it is written, as one in memory does.
    if (taken != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) {
      const int error = errno;
      Uninterrupted([&] { return CurrentSystem().Unlink(path.c_str()); });
      return SystemError(error, absl::StrCat("take ", bytes, " bytes for"), path);
    }
  }
  return file;
}

absl::StatusOr<std::unique_ptr<WriteFile>> WriteFile::Reopen(const std::string& path) {
  const int fd = OpenRetrying(path, O_WRONLY | O_NOFOLLOW, 0);
  if (fd < 0) return SystemError(errno, "open", path);
  return std::unique_ptr<WriteFile>(new WriteFile(path, fd));
}

WriteFile::~WriteFile() {
  if (fd_ >= 0) CurrentSystem().Close(fd_);
}

absl::Status WriteFile::WriteAt(int64_t at, std::string_view data) {
  size_t done = 0;
  while (done < data.size()) {
    const size_t ask = std::min<size_t>(data.size() - done, kMostAtOnce);
    const ssize_t put = CurrentSystem().PWrite(fd_, data.data() + done, ask, at + static_cast<int64_t>(done));
    if (put < 0 && errno == EINTR) continue;
    // Nothing written and no error: retrying could go on forever.
    if (put <= 0) return SystemError(put == 0 ? EIO : errno, "write", path_);
    done += static_cast<size_t>(put);
  }
  return absl::OkStatus();
}

absl::Status WriteFile::Sync() {
  // Not repeated after a failure: the kernel has dropped the pages, and the next call would report success.
  const int done = Uninterrupted([&] { return CurrentSystem().FSync(fd_); });
  return done == 0 ? absl::OkStatus() : SystemError(errno, "sync", path_);
}

absl::Status WriteFile::Truncate(int64_t bytes) {
  const int done = Uninterrupted([&] { return CurrentSystem().FTruncate(fd_, bytes); });
  return done == 0 ? absl::OkStatus() : SystemError(errno, "shorten", path_);
}

absl::Status WriteFile::Close() {
  // Interrupted or not, Linux has closed it.
  if (CurrentSystem().Close(std::exchange(fd_, -1)) != 0 && errno != EINTR) return SystemError(errno, "close", path_);
  return absl::OkStatus();
}

std::vector<absl::StatusOr<FileFacts>> LookAt(const std::string& directory, const std::vector<std::string>& names,
                                              bool follow_links) {
  std::vector<absl::StatusOr<FileFacts>> facts(names.size());
  const auto look = [&](size_t i) {
    const std::string path = JoinPath(directory, names[i]);
    if (stores::IsUrl(path)) {
      facts[i] = LookAtRemote(path);
      return;
    }
    const absl::StatusOr<std::unique_ptr<ReadFile>> file = ReadFile::Open(path, follow_links);
    if (file.ok()) {
      facts[i] = FileFacts{(*file)->bytes(), (*file)->modified()};
    } else {
      facts[i] = file.status();
    }
  };
  if (!stores::IsUrl(directory)) {
    for (size_t i = 0; i < names.size(); ++i) look(i);
    return facts;
  }
  const absl::Status asked = stores::AtOnce(static_cast<int64_t>(names.size()), [&](int64_t i) {
    look(static_cast<size_t>(i));
    return absl::OkStatus();
  });
  if (!asked.ok()) facts.assign(names.size(), asked);
  return facts;
}

absl::StatusOr<std::unique_ptr<ReadFile>> OpenInTurn::Next() {
  if (next_ == names_.size()) return absl::InternalError("more files than names");
  if (!stores::IsUrl(directory_)) return ReadFile::Open(JoinPath(directory_, names_[next_++]), follow_links_);
  if (ahead_.empty()) {
    ahead_.resize(std::min(names_.size() - next_, static_cast<size_t>(stores::kMostAtOnce)));
    RETURN_IF_ERROR(stores::AtOnce(static_cast<int64_t>(ahead_.size()), [&](int64_t i) {
      const auto k = static_cast<size_t>(i);
      ahead_[ahead_.size() - 1 - k] = ReadFile::Open(JoinPath(directory_, names_[next_ + k]), follow_links_);
      return absl::OkStatus();
    }));
  }
  ++next_;
  const absl::Status opened = ahead_.back().status();
  std::unique_ptr<ReadFile> file = opened.ok() ? *std::move(ahead_.back()) : nullptr;
  ahead_.pop_back();
  if (!opened.ok()) return opened;
  return file;
}

absl::StatusOr<std::vector<std::string>> TakeNames(DIR* directory, std::string_view path) {
  std::vector<std::string> names;
  while (const struct dirent* entry = Uninterrupted([&] { return CurrentSystem().ReadDir(directory); })) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  const int error = errno;
  CurrentSystem().CloseDir(directory);
  if (error != 0) return SystemError(error, "list", path);
  return names;
}

absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) {
  if (stores::IsUrl(path)) return ListRemote(path);
  DIR* const directory = Uninterrupted([&] { return CurrentSystem().OpenDir(path.c_str()); });
  if (directory == nullptr) return SystemError(errno, "list", path);
  absl::StatusOr<std::vector<std::string>> names = TakeNames(directory, path);
  if (names.ok()) std::sort(names->begin(), names->end());
  return names;
}

absl::Status SyncDirectory(const std::string& path) {
  const int fd = OpenRetrying(path, O_RDONLY | O_DIRECTORY, 0);
  if (fd < 0) return SystemError(errno, "open", path);
  const int done = Uninterrupted([&] { return CurrentSystem().FSync(fd); });
  const int error = errno;
  CurrentSystem().Close(fd);
  // EINVAL: a filesystem whose directories cannot be synced, and need not be.
  return done == 0 || error == EINVAL ? absl::OkStatus() : SystemError(error, "sync", path);
}

absl::StatusOr<FileKind> KindOf(const std::string& path, std::optional<std::vector<std::string>>* names) {
  if (stores::IsUrl(path)) return KindOfRemote(path, names);
  struct stat facts;
  if (Uninterrupted([&] { return CurrentSystem().LStat(path.c_str(), &facts); }) != 0) {
    if (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG) return FileKind::kNothing;
    return SystemError(errno, "look at", path);
  }
  if (S_ISREG(facts.st_mode)) return FileKind::kFile;
  if (S_ISDIR(facts.st_mode)) return FileKind::kDirectory;
  if (S_ISLNK(facts.st_mode)) return FileKind::kLink;
  return FileKind::kOther;
}

absl::StatusOr<std::vector<DirectoryEntry>> ListEntries(const std::string& path) {
  if (stores::IsUrl(path)) return ListRemoteEntries(path);
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListDirectory(path));
  std::vector<DirectoryEntry> entries;
  for (std::string& name : names) entries.push_back({std::move(name), std::nullopt});
  return entries;
}

absl::StatusOr<std::string> TargetOf(const std::string& link) {
  constexpr size_t kLongest = 4096;
  std::string target(kLongest + 1, '\0');
  const ssize_t length =
      Uninterrupted([&] { return CurrentSystem().ReadLink(link.c_str(), target.data(), target.size()); });
  if (length < 0) return SystemError(errno, "read the link", link);
  if (static_cast<size_t>(length) > kLongest) {
    return absl::DataLossError(absl::StrCat(link, " is a link of more than ", kLongest, " bytes"));
  }
  target.resize(length);
  return target;
}

std::string JoinPath(std::string_view directory, std::string_view name) {
  const bool slash = !directory.empty() && directory.back() == '/';
  return absl::StrCat(status::View(directory), slash || directory.empty() ? "" : "/", status::View(name));
}

absl::Status CheckRelativePath(std::string_view relative) {
  const auto refuse = [&](absl::string_view reason) {
    return absl::InvalidArgumentError(absl::StrCat("the path ", Shown(relative), " ", reason));
  };
  if (relative.empty()) return refuse("is empty");
  // Systems take some 4,000 with the directory's. Walking along a path takes one step for each of its parts.
  constexpr size_t kLongest = 1024;
  if (relative.size() > kLongest) return refuse(absl::StrCat("has ", relative.size(), " bytes"));
  if (relative.find('\0') != std::string_view::npos) return refuse("has a NUL byte");
  if (relative.front() == '/') return refuse("is absolute");
  for (size_t begin = 0; begin <= relative.size();) {
    const size_t end = std::min(relative.find('/', begin), relative.size());
    const std::string_view part = relative.substr(begin, end - begin);
    if (part.empty() || part == ".") return refuse("has an empty part");
    if (part == "..") return refuse("leaves its directory");
    begin = end + 1;
  }
  return absl::OkStatus();
}

absl::Status MakeParents(const std::string& top, std::string_view path) {
  for (size_t slash = path.find('/'); slash != std::string_view::npos; slash = path.find('/', slash + 1)) {
    const std::string parent = JoinPath(top, path.substr(0, slash));
    const int made = Uninterrupted([&] { return CurrentSystem().MkDir(parent.c_str(), 0777); });
    if (made != 0 && errno != EEXIST) return SystemError(errno, "create", parent);
  }
  return absl::OkStatus();
}

}  // namespace reshard::io
