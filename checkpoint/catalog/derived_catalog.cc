#include "checkpoint/catalog/derived_catalog.h"

#include <deque>
#include <memory>
#include <string_view>

#include "checkpoint/catalog/catalog_lookup.h"

namespace reshard::catalog {
namespace {

// What the views of the derived catalog point into.
struct Names {
  std::shared_ptr<const void> before;  // shapes and dtypes
  std::deque<std::string> names;
  std::deque<std::vector<int64_t>> shapes_made;
};

}  // namespace

Catalog DerivedCatalog::Make(std::vector<Kept> tensors, std::vector<Kept> byte_items,
                             std::vector<Catalog::Attribute> attributes) && {
  auto names = std::make_shared<Names>();
  auto lookup = std::make_shared<CatalogLookup>();
  names->before = before_.names_;
  const auto rename = [&](std::string_view before, Kept* kept, int64_t number) {
    const std::string_view name = names->names.emplace_back(std::move(kept->name));
    lookup->items.emplace(name, number);
    if (const std::vector<Catalog::PathStep>* const path = before_.PathOf(before)) {
      lookup->paths.emplace(name, name == before ? *path : std::vector<Catalog::PathStep>{std::string(name)});
    }
    return name;
  };
  std::vector<Catalog::Tensor> kept_tensors;
  for (Kept& kept : tensors) {
    Catalog::Tensor tensor = before_.tensors_[kept.index];
    tensor.name = rename(tensor.name, &kept, static_cast<int64_t>(kept_tensors.size()));
    if (kept.made) {
      tensor.shape = names->shapes_made.emplace_back(std::move(kept.made->shape));
      tensor.dtype = kept.made->dtype;
      tensor.stored_dtype = Name(kept.made->dtype);
      tensor.num_chunks = 0;
      tensor.bytes = SizeOf(kept.made->dtype);
      for (const int64_t size : tensor.shape) tensor.bytes *= size;
    }
    kept_tensors.push_back(tensor);
  }
  std::vector<Catalog::ByteItem> kept_items;
  for (Kept& kept : byte_items) {
    Catalog::ByteItem item = before_.byte_items_[kept.index];
    item.name = rename(item.name, &kept, -1 - static_cast<int64_t>(kept_items.size()));
    kept_items.push_back(item);
  }
  Catalog made = std::move(before_);
  made.attributes_ = std::move(attributes);
  made.tensors_ = std::move(kept_tensors);
  made.byte_items_ = std::move(kept_items);
  made.names_ = std::move(names);
  made.lookup_ = std::move(lookup);
  return made;
}

}  // namespace reshard::catalog
