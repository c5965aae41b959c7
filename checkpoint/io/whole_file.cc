#include "checkpoint/io/whole_file.h"

#include <memory>

#include "checkpoint/io/files.h"
#include "checkpoint/io/remove_tree.h"

namespace reshard {

absl::Status WriteWholeFile(const std::string& path, std::string_view bytes) {
  if (absl::Status removed = RemoveTree(path); !removed.ok()) return removed;
  const absl::StatusOr<std::unique_ptr<WriteFile>> file = WriteFile::Create(path);
  if (!file.ok()) return file.status();
  if (absl::Status put = (*file)->WriteAt(0, bytes); !put.ok()) return put;
  if (absl::Status synced = (*file)->Sync(); !synced.ok()) return synced;
  return (*file)->Close();
}

}  // namespace reshard
