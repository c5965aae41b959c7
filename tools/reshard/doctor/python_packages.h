// Which packages a user's Python has, judging by file names: nothing is run.
#ifndef RESHARD_TOOLS_RESHARD_DOCTOR_PYTHON_PACKAGES_H_
#define RESHARD_TOOLS_RESHARD_DOCTOR_PYTHON_PACKAGES_H_

#include <optional>
#include <string>
#include <vector>

namespace reshard::doctor {

struct PythonPackage {
  std::string version;  // "2.11.0"
  std::string folder;   // that contains it: .../site-packages
};

// The package folders of the active virtual environment, of the Python in PATH, and of the prefix that this program is
// installed in, in this order.
std::vector<std::string> PackageFolders();
// The first of `folders` that has the distribution `name`.
std::optional<PythonPackage> FindPackage(const std::string& name, const std::vector<std::string>& folders);

}  // namespace reshard::doctor

#endif  // RESHARD_TOOLS_RESHARD_DOCTOR_PYTHON_PACKAGES_H_
