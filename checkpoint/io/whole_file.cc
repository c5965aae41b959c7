#include "checkpoint/io/whole_file.h"

#include <memory>

#include "checkpoint/io/files.h"
#include "checkpoint/io/remove_tree.h"
#include "checkpoint/stores/url.h"
#include "reshard/checkpoint/filesystem.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard::io {

absl::Status WriteWholeFile(const std::string& path, std::string_view bytes) {
  RETURN_IF_ERROR(RemoveTree(path));
  ASSIGN_OR_RETURN(const std::unique_ptr<WriteFile> file, WriteFile::Create(path));
  RETURN_IF_ERROR(file->WriteAt(0, bytes));
  RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

}  // namespace reshard::io

absl::StatusOr<std::string> reshard::ReadSmallFile(const std::string& path, int64_t limit) {
  return status::NoThrow("reading a file", [&]() -> absl::StatusOr<std::string> {
    std::string admitted = path;
    if (stores::IsUrl(path)) {
      ASSIGN_OR_RETURN(admitted, stores::Admit(path));
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<io::ReadFile> file, io::ReadFile::Open(admitted, /*follow_links=*/true));
    return file->ReadAll(limit);
  });
}
