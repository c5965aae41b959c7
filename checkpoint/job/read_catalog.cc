// What kind of checkpoint a path is.
#include <new>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard {
namespace {

absl::StatusOr<Catalog> ReadSafetensorsCatalog(const std::string& path, const CatalogLimits&) {
  return absl::UnimplementedError(absl::StrCat(path, ": safetensors"));
}

}  // namespace

absl::StatusOr<Catalog> ReadCatalog(const std::string& path, const CatalogLimits& limits) {
  return ReadSafetensorsCatalog(path, limits);
}

}  // namespace reshard
