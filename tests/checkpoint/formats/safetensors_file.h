// Safetensors files made by hand, and a directory to put them in. The header is any text: most of these files are
// wrong.
#ifndef RESHARD_TESTS_CHECKPOINT_FORMATS_SAFETENSORS_FILE_H_
#define RESHARD_TESTS_CHECKPOINT_FORMATS_SAFETENSORS_FILE_H_

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace reshard::testing {

// The bytes of a file: eight of length, the header, `data_bytes` of data.
inline std::string SafetensorsBytes(uint64_t length, std::string_view header, int64_t data_bytes) {
  std::string out;
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(length >> (8 * i) & 0xff));
  out += header;
  for (int64_t i = 0; i < data_bytes; ++i) out.push_back(static_cast<char>(i * 37 + 11));
  return out;
}

// The same with the length that is right.
inline std::string SafetensorsBytes(std::string_view header, int64_t data_bytes) {
  return SafetensorsBytes(header.size(), header, data_bytes);
}

// A directory of its own, removed with what is in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "reshard_test_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a temporary directory");
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string path(std::string_view name = "") const { return name.empty() ? path_.string() : (path_ / name).string(); }

  // Writes a file of that name, and the directories on the way; returns its path.
  std::string Write(std::string_view name, std::string_view content) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
    return file.string();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_CHECKPOINT_FORMATS_SAFETENSORS_FILE_H_
