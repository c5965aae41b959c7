// A file in memory, for readers that want a file.
#ifndef RESHARD_TESTS_FUZZ_MEMORY_FILE_H_
#define RESHARD_TESTS_FUZZ_MEMORY_FILE_H_

#include <memory>
#include <string>
#include <string_view>

#include "checkpoint/io/files.h"
#include "tests/fuzz/fuzz.h"

namespace reshard::testing {

inline std::unique_ptr<io::ReadFile> MemoryFile(std::string_view bytes) {
  return io::ReadFile::OfBytes("fuzz", std::make_shared<const std::string>(bytes));
}

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_FUZZ_MEMORY_FILE_H_
