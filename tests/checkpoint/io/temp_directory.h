// A directory of a test's own, gone when the test is.
#ifndef RESHARD_TESTS_CHECKPOINT_IO_TEMP_DIRECTORY_H_
#define RESHARD_TESTS_CHECKPOINT_IO_TEMP_DIRECTORY_H_

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace reshard::testing {

class TempDirectory {
 public:
  // In memory where the machine has a place for that: thousands of small files are made there in no time.
  enum class Where { kAnywhere, kInMemory };

  explicit TempDirectory(Where where = Where::kAnywhere) : path_(Parent(where) / "reshard-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no directory for the test");
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  static std::filesystem::path Parent(Where where) {
    constexpr const char* kMemory = "/dev/shm";
    const bool has_memory = where == Where::kInMemory && access(kMemory, W_OK) == 0;
    return has_memory ? std::filesystem::path(kMemory) : std::filesystem::temp_directory_path();
  }

  std::string path_;
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_CHECKPOINT_IO_TEMP_DIRECTORY_H_
