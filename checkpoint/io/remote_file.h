// Files on https servers, read as those of the system are.
#ifndef RESHARD_CHECKPOINT_IO_REMOTE_FILE_H_
#define RESHARD_CHECKPOINT_IO_REMOTE_FILE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/io/files.h"

namespace reshard::io {

// Bytes of memory for all files at URLs together: the blocks, and libcurl with what it loads.
inline constexpr int64_t kRemoteMemory = int64_t{24} << 20;

// All URLs here are admitted (https/url.h), and names are joined to them as they are.

// The file at a URL. Reads of up to 32 KiB come from blocks of 128 KiB, of which the process keeps 64; others are asked
// for by 8 MiB. `count` as ReadFile::Open.
// Errors as https::GetRange; when reading also FailedPrecondition: the file is another one than when
// it was opened.
absl::StatusOr<std::unique_ptr<ReadFile>> OpenRemote(const std::string& url, std::atomic<int64_t>* count);

// A file, where the server has one there; a directory, where it has files below that checkpoints have; or nothing.
absl::StatusOr<FileKind> KindOfRemote(const std::string& url);

// The names that there are in a directory, of those that checkpoints and what belongs to them have: servers do not
// list. Asked for once in a process. NotFound: none of them.
absl::StatusOr<std::vector<std::string>> ListRemote(const std::string& url);

}  // namespace reshard::io

#endif  // RESHARD_CHECKPOINT_IO_REMOTE_FILE_H_
