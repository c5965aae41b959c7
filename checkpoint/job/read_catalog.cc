// What kind of checkpoint a path is.
#include "absl/strings/str_cat.h"
#include "checkpoint/dcp/read_dcp.h"
#include "checkpoint/io/files.h"
#include "checkpoint/safetensors/read.h"
#include "planner/layout/no_throw.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard {
namespace {

absl::StatusOr<Catalog> Read(const std::string& path, const CatalogLimits& limits) {
  const absl::StatusOr<FileKind> kind = KindOf(path);
  if (!kind.ok()) return kind.status();
  if (*kind == FileKind::kNothing) return absl::NotFoundError(absl::StrCat(path, ": there is nothing"));
  if (*kind == FileKind::kFile) return ReadSafetensorsCatalog(path, limits);
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(path);
  if (names.ok()) {
    const std::vector<std::string> metadata = MetadataFiles(*names);
    if (!metadata.empty()) return ReadDcpCatalog(path, metadata, limits);
  } else if (*kind == FileKind::kDirectory) {
    return names.status();
  }
  return ReadSafetensorsCatalog(path, limits);  // a directory of them, or a link to a file
}

}  // namespace

absl::StatusOr<Catalog> ReadCatalog(const std::string& path, const CatalogLimits& limits) {
  return NoThrow(absl::StrCat("reading ", path), [&] { return Read(path, limits); });
}

}  // namespace reshard
