// What readers of a catalog must know of its format, besides where everything is. Each format's module defines its own,
// which it passes to CatalogBuilder.
#ifndef RESHARD_CHECKPOINT_CATALOG_FORMAT_TRAITS_H_
#define RESHARD_CHECKPOINT_CATALOG_FORMAT_TRAITS_H_

#include <string_view>

#include "reshard/checkpoint/catalog.h"

namespace reshard::catalog {

struct FormatTraits {
  CheckpointFormat format = CheckpointFormat::kDcp;
  // As flags and JSON call it.
  std::string_view name;
  // Files may be symbolic links, which is how hubs keep them. Otherwise nothing below the directory may be one.
  bool may_be_links = false;
  // A chunk is an archive around its elements, and a sidecar has one hash of it. Otherwise a chunk is its elements,
  // dense and row-major, of which a sidecar may have a hash piece by piece.
  bool chunks_are_archives = false;
  // Ranks that saved on their own have each stored their replica: a byte item may come again, and so may a box of a
  // tensor, at another place. The first stays.
  bool replicas_come_again = false;
  // A file with chunks says what is in it before the first of them.
  bool files_begin_with_header = false;
  // Whether a file of that name, which has no chunks, says what is where.
  bool (*is_header)(std::string_view name) = nullptr;
  // Whether a file of that name is written last: it makes a checkpoint of what is there. Null: none is written.
  bool (*completes)(std::string_view name) = nullptr;
};

}  // namespace reshard::catalog

#endif  // RESHARD_CHECKPOINT_CATALOG_FORMAT_TRAITS_H_
