// A catalog made out of another: some of its tensors and byte items, under other names, at the same places.
#ifndef RESHARD_CHECKPOINT_CATALOG_DERIVED_CATALOG_H_
#define RESHARD_CHECKPOINT_CATALOG_DERIVED_CATALOG_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "reshard/checkpoint/catalog.h"

namespace reshard::catalog {

// The tensor, or byte item, of that index in the catalog before.
struct Kept {
  size_t index = 0;
  std::string name;
};

class DerivedCatalog {
 public:
  explicit DerivedCatalog(Catalog before) : before_(std::move(before)) {}

  // Called once. No name comes twice. Paths in nested containers stay with names that stay; others are a path of one
  // step where the name before had one. Attributes of the whole checkpoint stay, or go.
  Catalog Make(std::vector<Kept> tensors, std::vector<Kept> byte_items, bool keep_attributes) &&;

 private:
  Catalog before_;
};

}  // namespace reshard::catalog

#endif  // RESHARD_CHECKPOINT_CATALOG_DERIVED_CATALOG_H_
