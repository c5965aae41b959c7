#include "tools/reshard/run/mpi_program.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace reshard::tool {

std::vector<std::string> PlacesOfMpiProgram() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const std::filesystem::path folder = self.parent_path();
  return {folder / "reshard-mpi", folder.parent_path() / "libexec" / "reshard" / "reshard-mpi"};
}

std::string FindMpiProgram() {
  for (const std::string& path : PlacesOfMpiProgram()) {
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

}  // namespace reshard::tool
