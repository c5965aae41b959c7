// What a catalog of torch.save promises to those who read what is in it.
#ifndef RESHARD_TESTS_FUZZ_READ_TENSORS_H_
#define RESHARD_TESTS_FUZZ_READ_TENSORS_H_

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/source/source.h"
#include "reshard/checkpoint/catalog.h"
#include "tests/fuzz/fuzz.h"

namespace reshard::testing {

inline void CheckPlaces(const Catalog& catalog, int64_t bytes) {
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    Promised(catalog.FindTensor(tensor.name) == &tensor, "a tensor is found by its name");
    for (int64_t i = 0; i < tensor.num_chunks; ++i) {
      const Catalog::FileRange place = catalog.chunk(tensor, i).place;
      // Arrays and values are in memory.
      const Catalog::File& file = catalog.files()[place.file];
      const int64_t end = file.content == nullptr ? bytes : file.bytes;
      Promised(place.at >= 0 && place.length >= 0 && place.at + place.length <= end, "a place in the file");
    }
    (void)catalog.CheckCover(tensor).ok();
  }
}

inline void ReadAll(const std::string& path) {
  const absl::StatusOr<std::unique_ptr<source::Source>> source = source::Source::Open(path, {});
  if (!source.ok()) return;
  const Catalog& catalog = (*source)->catalog();
  for (size_t i = 0; i < catalog.tensors().size(); ++i) {
    const Catalog::Tensor& tensor = catalog.tensors()[i];
    if (!tensor.dtype || tensor.bytes > 1 << 16) continue;
    std::string out(static_cast<size_t>(tensor.bytes), '\0');
    const std::vector<int64_t> zero(tensor.shape.size(), 0);
    Promised((*source)->Read(static_cast<int64_t>(i), zero, tensor.shape, absl::MakeSpan(out)).ok(),
             "every element lies in its record");
  }
  for (size_t i = 0; i < catalog.byte_items().size(); ++i) {
    std::string out(static_cast<size_t>(catalog.byte_items()[i].place.length), '\0');
    Promised((*source)->ReadItem(static_cast<int64_t>(i), 0, absl::MakeSpan(out)).ok(), "a value that was made");
  }
}

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_FUZZ_READ_TENSORS_H_
