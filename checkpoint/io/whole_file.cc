#include "checkpoint/io/whole_file.h"

#include <memory>

#include "checkpoint/io/files.h"
#include "checkpoint/io/remove_tree.h"
#include "status/macros.h"

namespace reshard::io {

absl::Status WriteWholeFile(const std::string& path, std::string_view bytes) {
  RETURN_IF_ERROR(RemoveTree(path));
  ASSIGN_OR_RETURN(const std::unique_ptr<WriteFile> file, WriteFile::Create(path));
  RETURN_IF_ERROR(file->WriteAt(0, bytes));
  RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

}  // namespace reshard::io
