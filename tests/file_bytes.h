// What is in a file.
#ifndef RESHARD_TESTS_FILE_BYTES_H_
#define RESHARD_TESTS_FILE_BYTES_H_

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace reshard::testing {

// All bytes of a file; none if it cannot be read.
inline std::string FileBytes(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  std::string bytes(error ? 0 : size, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(in.gcount());
  return bytes;
}

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_FILE_BYTES_H_
