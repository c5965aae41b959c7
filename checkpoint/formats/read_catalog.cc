// What kind of checkpoint a path is, and the formats there are.
#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/format_traits.h"
#include "checkpoint/formats/dcp/format.h"
#include "checkpoint/formats/dcp/read_dcp.h"
#include "checkpoint/formats/recognize.h"
#include "checkpoint/formats/safetensors/format.h"
#include "checkpoint/formats/safetensors/read.h"
#include "checkpoint/io/files.h"
#include "reshard/checkpoint/catalog.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard {
namespace {

absl::StatusOr<Catalog> Read(const std::string& path, const CatalogLimits& limits) {
  ASSIGN_OR_RETURN(const io::FileKind kind, io::KindOf(path));
  if (kind == io::FileKind::kNothing) return absl::NotFoundError(absl::StrCat(path, ": there is nothing"));
  if (kind == io::FileKind::kFile) return safetensors::ReadSafetensorsCatalog(path, limits);
  const absl::StatusOr<std::vector<std::string>> names = io::ListDirectory(path);
  if (names.ok()) {
    const std::vector<std::string> metadata = dcp::MetadataFiles(*names);
    if (!metadata.empty()) return dcp::ReadDcpCatalog(path, metadata, limits);
  } else if (kind == io::FileKind::kDirectory) {
    return names.status();
  }
  return safetensors::ReadSafetensorsCatalog(path, limits);  // a directory of them, or a link to a file
}

constexpr const catalog::FormatTraits* kFormats[] = {&dcp::kFormat, &safetensors::kFormat};

}  // namespace

std::string_view Name(CheckpointFormat format) {
  for (const catalog::FormatTraits* traits : kFormats) {
    if (traits->format == format) return traits->name;
  }
  return "unknown";
}

std::optional<CheckpointFormat> FindCheckpointFormat(std::string_view name) {
  for (const catalog::FormatTraits* traits : kFormats) {
    if (traits->name == name) return traits->format;
  }
  return std::nullopt;
}

absl::StatusOr<Catalog> ReadCatalog(const std::string& path, const CatalogLimits& limits) {
  return status::NoThrow(absl::StrCat("reading ", path), [&]() -> absl::StatusOr<Catalog> {
    absl::StatusOr<Catalog> catalog = Read(path, limits);
    // What is found at fault with a file that is none of ours says less than what it is.
    if (absl::IsNotFound(catalog.status()) || absl::IsDataLoss(catalog.status())) {
      RETURN_IF_ERROR(formats::Recognize(path));
    }
    return catalog;
  });
}

}  // namespace reshard
