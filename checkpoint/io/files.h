// Files and directories: complete reads and writes that handle interruptions and short counts, with errors that name
// the file. Everything goes through System.
//
// Errors of the system: NotFound for ENOENT, ENOTDIR and ENAMETOOLONG; ResourceExhausted for ENOSPC and EDQUOT;
// Unavailable for all others; the message has the path and the system's reason. Wrong content of a file is DataLoss.
#ifndef RESHARD_CHECKPOINT_IO_FILES_H_
#define RESHARD_CHECKPOINT_IO_FILES_H_

#include <dirent.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace reshard::io {

// The error that errno, taken right after a call failed, stands for: "cannot <what> <path>: <reason>".
absl::Status SystemError(int error, std::string_view what, std::string_view path);

// Of a regular file: its bytes, and when it had last been written, in nanoseconds since 1970 (of a URL: another number
// if the content is another).
struct FileFacts {
  int64_t bytes = 0;
  int64_t modified = 0;
};

// A regular file, or what can be read as one, that is read at any place by any number of threads.
class ReadFile {
 public:
  // A path that is a URL is read from its server (remote_file.h).
  // DataLoss: not a regular file (a directory, a device, a pipe). Symbolic links are followed only when `follow_links`.
  // Where `count`, which must outlive the file, is not null, the bytes of every read are added to it.
  static absl::StatusOr<std::unique_ptr<ReadFile>> Open(const std::string& path, bool follow_links = false,
                                                        std::atomic<int64_t>* count = nullptr);
  // Bytes that are in memory, read as a file is.
  static std::unique_ptr<ReadFile> OfBytes(std::string path, std::shared_ptr<const std::string> bytes);
  // Bytes [at, at + length) of `file`, which has them and must outlive the part.
  static std::unique_ptr<ReadFile> PartOf(const ReadFile& file, int64_t at, int64_t length);
  virtual ~ReadFile() = default;
  ReadFile(const ReadFile&) = delete;
  ReadFile& operator=(const ReadFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }  // when it was opened
  // When it was last written, as of then, in nanoseconds since 1970.
  int64_t modified() const { return modified_; }

  // Up to how many bytes it is better to read in vain than to skip at the cost of one more call.
  virtual int64_t gap() const { return kGap; }

  // How many bytes a reader that gathers them in a buffer should ask for in one call.
  virtual int64_t most() const { return kMost; }

  // Announces that these bytes will be read next, one after the other. Where calls take long, and the bytes are few,
  // reads all of them in one call, and keeps them until then.
  virtual absl::Status ReadAhead(int64_t /*at*/, int64_t /*length*/) const { return absl::OkStatus(); }
  // Fills `out` from byte `at` on. DataLoss: the file ends before (how many bytes it has).
  virtual absl::Status ReadAt(int64_t at, absl::Span<char> out) const = 0;
  // Bytes [at, at + length), for which memory is taken as they come: a server may claim any length.
  absl::StatusOr<std::string> ReadText(int64_t at, int64_t length) const;
  // The whole file; ResourceExhausted when it has more than `limit` bytes.
  absl::StatusOr<std::string> ReadAll(int64_t limit) const;
  // ResourceExhausted when it has more than `limit` bytes.
  absl::Status CheckSize(int64_t limit) const;

 protected:
  // A call takes as long as copying 2 KiB, as measured on files in memory. On a disk the system reads whole pages, and
  // ahead, whatever is asked for.
  static constexpr int64_t kGap = int64_t{2} << 10;
  static constexpr int64_t kMost = int64_t{4} << 20;

  ReadFile(std::string path, int64_t bytes, int64_t modified)
      : path_(std::move(path)), bytes_(bytes), modified_(modified) {}

 private:
  std::string path_;
  int64_t bytes_;
  int64_t modified_;
};

// A new file that is written at any place by any number of threads.
class WriteFile {
 public:
  // Creates it; AlreadyExists when there is one. With `bytes` > 0 the space is taken at once where the filesystem can,
  // so that a full disk is known before the work; not in memory, where that takes as long as the work.
  static absl::StatusOr<std::unique_ptr<WriteFile>> Create(const std::string& path, int64_t bytes = 0);
  // Opens an existing file, to continue it.
  static absl::StatusOr<std::unique_ptr<WriteFile>> Reopen(const std::string& path);
  ~WriteFile();  // closes it; what Close would have reported is lost
  WriteFile(const WriteFile&) = delete;
  WriteFile& operator=(const WriteFile&) = delete;

  const std::string& path() const { return path_; }
  absl::Status WriteAt(int64_t at, std::string_view data);
  // Makes the file end at byte `bytes`.
  absl::Status Truncate(int64_t bytes);
  // What was written is on the disk.
  absl::Status Sync();
  // Closes the file; reports errors that the system kept until now. May be called once.
  absl::Status Close();

 private:
  WriteFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_;
};

// The facts of files of a directory, or the error with which ReadFile::Open would refuse each; at a URL
// asks for all in parallel.
std::vector<absl::StatusOr<FileFacts>> LookAt(const std::string& directory, const std::vector<std::string>& names,
                                              bool follow_links);

// Opens files of a directory, one after the other; at a URL some ahead, in parallel.
class OpenInTurn {
 public:
  OpenInTurn(std::string directory, std::vector<std::string> names, bool follow_links)
      : directory_(std::move(directory)), names_(std::move(names)), follow_links_(follow_links) {}
  // As ReadFile::Open, of the next name.
  absl::StatusOr<std::unique_ptr<ReadFile>> Next();

 private:
  const std::string directory_;
  const std::vector<std::string> names_;
  const bool follow_links_;
  size_t next_ = 0;
  std::vector<absl::StatusOr<std::unique_ptr<ReadFile>>> ahead_;  // the last of them is the next one
};

// The names that are left in an open directory, without "." and "..", in any order; closes it. `path` for the message.
absl::StatusOr<std::vector<std::string>> TakeNames(DIR* directory, std::string_view path);
// Names in a directory without "." and "..", sorted; at a URL, those that are known. NotFound, Unavailable.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);
// Makes the entries of a directory durable.
absl::Status SyncDirectory(const std::string& path);
enum class FileKind { kNothing, kFile, kDirectory, kLink, kOther };
// `names`: gets what ListDirectory returns, if finding the kind has told it: for a directory at a URL.
absl::StatusOr<FileKind> KindOf(const std::string& path, std::optional<std::vector<std::string>>* names = nullptr);
struct DirectoryEntry {
  std::string name;
  std::optional<FileKind> kind;  // as KindOf, where listing tells it: at a URL
};
// What ListDirectory says, with what else listing tells. If a store has a file and a folder of one name: the file.
absl::StatusOr<std::vector<DirectoryEntry>> ListEntries(const std::string& path);
// The target of a symbolic link, whether it exists or not. DataLoss: more than 4096 bytes.
absl::StatusOr<std::string> TargetOf(const std::string& link);

// "a/b". `name` is used as it is.
std::string JoinPath(std::string_view directory, std::string_view name);
// InvalidArgument unless `relative`, a path that a file names, stays below the directory it is relative to: not empty,
// not absolute, no "..", no empty or "." part, no NUL byte, at most 1024 bytes.
absl::Status CheckRelativePath(std::string_view relative);
// Creates the directories that `path` leads through, below `top`, where they are missing. Errors of the system.
absl::Status MakeParents(const std::string& top, std::string_view path);

}  // namespace reshard::io

#endif  // RESHARD_CHECKPOINT_IO_FILES_H_
