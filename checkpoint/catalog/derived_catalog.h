// A catalog made out of another: some of its tensors and byte items, under other names, at the same places, and tensors
// that are made of them.
#ifndef RESHARD_CHECKPOINT_CATALOG_DERIVED_CATALOG_H_
#define RESHARD_CHECKPOINT_CATALOG_DERIVED_CATALOG_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reshard/checkpoint/catalog.h"
#include "reshard/layout/dtype.h"

namespace reshard::catalog {

// The tensor, or byte item, of that index in the catalog before.
struct Kept {
  // What a tensor is instead, if it is another one: it is stored nowhere, and has no chunks.
  struct Made {
    std::vector<int64_t> shape;
    DType dtype = DType::kU8;
  };
  size_t index = 0;
  std::string name;
  std::optional<Made> made = {};
};

class DerivedCatalog {
 public:
  explicit DerivedCatalog(Catalog before) : before_(std::move(before)) {}

  // Called once. Requires that no name appears twice, and that the bytes of what is made fit 64 bits. Paths in nested
  // containers stay with names that stay; a new name has a path of one step if the old one had a path. The result has
  // these attributes.
  Catalog Make(std::vector<Kept> tensors, std::vector<Kept> byte_items, std::vector<Catalog::Attribute> attributes) &&;

 private:
  Catalog before_;
};

}  // namespace reshard::catalog

#endif  // RESHARD_CHECKPOINT_CATALOG_DERIVED_CATALOG_H_
