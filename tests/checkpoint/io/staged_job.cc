#include "tests/checkpoint/io/staged_job.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>

#include "checkpoint/io/files.h"
#include "checkpoint/io/remove_tree.h"
#include "checkpoint/io/system.h"
#include "tests/file_bytes.h"

namespace reshard::testing {

namespace fs = std::filesystem;

Content ContentOf(const std::string& word) {
  return {{"first", "the first of " + word}, {"below/second", "the second of " + word}};
}

Content ContentAt(const std::string& path) {
  const fs::file_status status = fs::symlink_status(path);
  if (!fs::exists(status)) return {{"", "nothing"}};
  if (fs::is_symlink(status)) return {{"", "link"}};
  if (!fs::is_directory(status)) return {{"", "no directory"}};
  Content content;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_directory()) continue;
    content[fs::relative(entry.path(), path).string()] = FileBytes(entry.path());
  }
  return content;
}

void PutContent(const std::string& path, const Content& content) {
  for (const auto& [name, text] : content) {
    const fs::path file = fs::path(path) / name;
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
  }
}

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status Fill(const io::StagedDirectory& staged, const Content& content) {
  for (const auto& [name, text] : content) {
    const std::string path = io::JoinPath(staged.data(), name);
    const size_t slash = name.find('/');
    if (slash != std::string::npos) {
      const std::string directory = io::JoinPath(staged.data(), name.substr(0, slash));
      if (io::Uninterrupted([&] { return io::CurrentSystem().MkDir(directory.c_str(), 0777); }) != 0 &&
          errno != EEXIST) {
        return io::SystemError(errno, "create", directory);
      }
    }
    // What an earlier run left may be half a file.
    if (absl::Status removed = io::RemoveTree(path); !removed.ok()) return removed;
    absl::StatusOr<std::unique_ptr<io::WriteFile>> file = io::WriteFile::Create(path);
    if (!file.ok()) return file.status();
    if (absl::Status put = (*file)->WriteAt(0, text); !put.ok()) return put;
    if (absl::Status synced = (*file)->Sync(); !synced.ok()) return synced;
    if (absl::Status closed = (*file)->Close(); !closed.ok()) return closed;
  }
  return absl::OkStatus();
}

absl::Status RunJob(const std::string& destination, const Content& content, const io::StageOptions& options) {
  absl::StatusOr<std::unique_ptr<io::StagedDirectory>> staged =
      io::StagedDirectory::Begin(destination, "job1", options);
  if (!staged.ok()) return staged.status();
  if (!(*staged)->was_committed()) {
    if (absl::Status filled = Fill(**staged, content); !filled.ok()) return filled;
  }
  return (*staged)->Commit();
}

}  // namespace reshard::testing
