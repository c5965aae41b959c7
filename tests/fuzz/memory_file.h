// A file in memory, for readers that want a file.
#ifndef RESHARD_TESTS_FUZZ_MEMORY_FILE_H_
#define RESHARD_TESTS_FUZZ_MEMORY_FILE_H_

#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>

#include "checkpoint/io/files.h"
#include "tests/fuzz/fuzz.h"

namespace reshard::testing {

inline std::unique_ptr<io::ReadFile> MemoryFile(std::string_view bytes) {
  static const int fd = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const auto size = static_cast<ssize_t>(bytes.size());
  Promised(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, bytes.data(), bytes.size(), 0) == size, "a file in memory");
  absl::StatusOr<std::unique_ptr<io::ReadFile>> file = io::ReadFile::Open(path, /*follow_links=*/true);
  Promised(file.ok(), "a file in memory can be opened");
  return *std::move(file);
}

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_FUZZ_MEMORY_FILE_H_
