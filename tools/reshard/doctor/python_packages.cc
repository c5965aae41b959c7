#include "tools/reshard/doctor/python_packages.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace reshard::doctor {
namespace {

namespace fs = std::filesystem;

// The names in a directory, sorted; none where it cannot be read.
std::vector<std::string> NamesIn(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// PREFIX/lib/python3.N/site-packages and the like.
void AddFoldersOf(const fs::path& prefix, std::vector<std::string>* folders) {
  for (const char* const lib : {"lib", "local/lib"}) {
    for (const std::string& python : NamesIn(prefix / lib)) {
      if (!absl::StartsWith(python, "python3")) continue;
      for (const char* const packages : {"site-packages", "dist-packages"}) {
        const fs::path folder = prefix / lib / python / packages;
        std::error_code error;
        if (!fs::is_directory(folder, error)) continue;
        if (std::find(folders->begin(), folders->end(), folder.string()) == folders->end()) {
          folders->push_back(folder.string());
        }
      }
    }
  }
}

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::vector<std::string> PackageFolders() {
  std::vector<std::string> folders;
  if (const std::string active = Variable("VIRTUAL_ENV"); !active.empty()) AddFoldersOf(active, &folders);
  for (const std::string& part :
       absl::StrSplit(Variable("PATH"), ':', absl::SkipEmpty()).operator std::vector<std::string>()) {
    std::error_code error;
    const fs::path python = fs::path(part) / "python3";
    if (!fs::exists(python, error)) continue;
    AddFoldersOf(python.parent_path().parent_path(), &folders);
    break;  // the one that runs
  }
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (!error) AddFoldersOf(self.parent_path().parent_path(), &folders);
  return folders;
}

std::optional<PythonPackage> FindPackage(const std::string& name, const std::vector<std::string>& folders) {
  constexpr std::string_view kEnd = ".dist-info";
  const std::string begin = name + "-";
  for (const std::string& folder : folders) {
    for (const std::string& entry : NamesIn(folder)) {
      if (!absl::StartsWith(entry, begin) || !entry.ends_with(kEnd)) continue;
      return PythonPackage{entry.substr(begin.size(), entry.size() - begin.size() - kEnd.size()), folder};
    }
  }
  return std::nullopt;
}

}  // namespace reshard::doctor
