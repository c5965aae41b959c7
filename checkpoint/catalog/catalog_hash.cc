#include "checkpoint/catalog/catalog_hash.h"

#include <string_view>

#include "checkpoint/catalog/stored_elements.h"
#include "checkpoint/hash/digest.h"

namespace reshard::catalog {

hash::ContentHash HashOfCatalog(const Catalog& catalog) {
  hash::Digest digest;
  digest.Add(static_cast<int64_t>(catalog.format()));
  for (const Catalog::File& file : catalog.files()) {
    digest.Add(std::string_view(file.path));
    digest.Add(file.bytes);
    if (file.content != nullptr) digest.Add(std::string_view(*file.content));
  }
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    digest.Add(tensor.name);
    digest.Add(tensor.stored_dtype);
    digest.Add(static_cast<int64_t>(tensor.shape.size()));
    digest.Add(tensor.shape);
    digest.Add(int64_t{tensor.requires_grad});
    digest.Add(tensor.num_chunks);
    for (int64_t i = 0; i < tensor.num_chunks; ++i) {
      const Catalog::Chunk chunk = catalog.chunk(tensor, i);
      digest.Add(chunk.offset);
      digest.Add(chunk.size);
      digest.Add({chunk.place.file, chunk.place.at, chunk.place.length});
      if (const StoredElements* const elements = catalog.StoredAs(tensor, i)) {
        digest.Add(elements->strides);
        digest.Add({int64_t{elements->conjugated}, int64_t{elements->negated}});
      }
    }
  }
  for (const Catalog::ByteItem& item : catalog.byte_items()) {
    digest.Add(item.name);
    digest.Add({item.place.file, item.place.at, item.place.length});
  }
  for (const Catalog::Attribute& attribute : catalog.attributes()) {
    digest.Add(std::string_view(attribute.name));
    digest.Add(std::string_view(attribute.pickle));
    if (attribute.is_opaque_value()) digest.Add(std::string_view(attribute.kind));
  }
  digest.Add(int64_t{catalog.has_index()});
  return digest.Hash();
}

}  // namespace reshard::catalog
