// How a catalog finds things by name. The keys point into memory that the catalog owns.
#ifndef RESHARD_CHECKPOINT_CATALOG_CATALOG_LOOKUP_H_
#define RESHARD_CHECKPOINT_CATALOG_CATALOG_LOOKUP_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::catalog {

struct CatalogLookup {
  absl::flat_hash_map<std::string_view, int64_t> items;  // the i-th tensor: i; the i-th byte item: -1 - i
  absl::flat_hash_map<std::string_view, std::vector<Catalog::PathStep>> paths;
  absl::flat_hash_map<std::string_view, std::string_view> names_in_files;  // of what is of one rank alone
};

}  // namespace reshard::catalog

#endif  // RESHARD_CHECKPOINT_CATALOG_CATALOG_LOOKUP_H_
