// What kind of checkpoint a path is.
#include <new>

#include "checkpoint/safetensors/read.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard {

absl::StatusOr<Catalog> ReadCatalog(const std::string& path, const CatalogLimits& limits) {
  try {
    return ReadSafetensorsCatalog(path, limits);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory while reading what is in " + path);
  }
}

}  // namespace reshard
