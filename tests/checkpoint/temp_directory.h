// A directory of a test's own, gone when the test is.
#ifndef RESHARD_TESTS_CHECKPOINT_TEMP_DIRECTORY_H_
#define RESHARD_TESTS_CHECKPOINT_TEMP_DIRECTORY_H_

#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace reshard::testing {

class TempDirectory {
 public:
  TempDirectory() : path_((std::filesystem::temp_directory_path() / "reshard-XXXXXX").string()) {
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
  std::string path_;
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_CHECKPOINT_TEMP_DIRECTORY_H_
