#include "checkpoint/job/catalog_hash.h"

namespace reshard {

ContentHash HashOfCatalog(const Catalog& catalog) {
  ContentHasher hasher;
  const auto number = [&](int64_t value) { hasher.Add({reinterpret_cast<const char*>(&value), sizeof(value)}); };
  const auto text = [&](std::string_view value) {
    number(static_cast<int64_t>(value.size()));
    hasher.Add(value);
  };
  const auto place = [&](const Catalog::Place& value) {
    number(value.file);
    number(value.at);
    number(value.length);
  };
  number(static_cast<int64_t>(catalog.format()));
  for (const Catalog::File& file : catalog.files()) {
    text(file.path);
    number(file.bytes);
  }
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    text(tensor.name);
    text(tensor.stored_dtype);
    number(static_cast<int64_t>(tensor.shape.size()));
    for (const int64_t size : tensor.shape) number(size);
    number(tensor.num_chunks);
    for (int64_t i = 0; i < tensor.num_chunks; ++i) {
      const Catalog::Chunk chunk = catalog.chunk(tensor, i);
      for (const int64_t value : chunk.offset) number(value);
      for (const int64_t value : chunk.size) number(value);
      place(chunk.place);
    }
  }
  for (const Catalog::ByteItem& item : catalog.byte_items()) {
    text(item.name);
    place(item.place);
  }
  return hasher.Finish();
}

}  // namespace reshard
