// Objects of stores and files on https servers (reshard/checkpoint/store.h), read as files of the system are.
#ifndef RESHARD_CHECKPOINT_IO_REMOTE_FILE_H_
#define RESHARD_CHECKPOINT_IO_REMOTE_FILE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/io/files.h"

namespace reshard::io {

// Bytes of memory for all files at URLs together: the blocks, and libcurl with what it loads. Without what a store
// of Python takes, such as the interpreter.
inline constexpr int64_t kRemoteMemory = int64_t{24} << 20;
// Bytes of what is read ahead (ReadFile::ReadAhead).
inline constexpr int64_t kAheadMemory = int64_t{128} << 20;

// ReadFile::most of them: what one thread takes for reading.
inline constexpr int64_t kRemoteMost = int64_t{16} << 20;

// All URLs here are admitted (stores/url.h), and names are joined to them as they are.

// The file at a URL. Reads of up to 32 KiB come from blocks of 128 KiB, of which the process keeps 64; others are asked
// for in parts of at least 2 MiB, all at the same time: the fewer reads are under way, the more parts each has, 64 for
// all of them together. `count` as ReadFile::Open.
// Errors as the store's; when reading also FailedPrecondition: the file has changed since it was opened.
absl::StatusOr<std::unique_ptr<ReadFile>> OpenRemote(const std::string& url, std::atomic<int64_t>* count);

// The size and time that Open would find.
absl::StatusOr<FileFacts> LookAtRemote(const std::string& url);

// A file, if the store has one there; a directory, if it has some below; otherwise nothing.
absl::StatusOr<FileKind> KindOfRemote(const std::string& url, std::optional<std::vector<std::string>>* names);

// What is right below, as Store::List has it, sorted by name, each name once. NotFound: nothing.
absl::StatusOr<std::vector<DirectoryEntry>> ListRemoteEntries(const std::string& url);
// The names alone.
absl::StatusOr<std::vector<std::string>> ListRemote(const std::string& url);

}  // namespace reshard::io

#endif  // RESHARD_CHECKPOINT_IO_REMOTE_FILE_H_
