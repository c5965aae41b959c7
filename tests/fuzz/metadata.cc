// Any bytes as `.metadata` of a distributed checkpoint with one data file, up to whether chunks cover their tensors.
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/formats/dcp/format.h"
#include "checkpoint/formats/dcp/read_metadata.h"
#include "checkpoint/io/files.h"
#include "reshard/checkpoint/describe.h"
#include "tests/checkpoint/io/temp_directory.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reshard;
  static const testing::TempDirectory dir;
  static const bool made = [] {
    std::ofstream(dir / "__0_0.distcp") << 'x';
    std::filesystem::resize_file(dir / "__0_0.distcp", 1 << 20);
    return true;
  }();
  testing::Promised(made, "a data file");
  catalog::CatalogBuilder builder(dcp::kFormat, dir.path());
  const auto file = io::ReadFile::OfBytes(".metadata", std::make_shared<const std::string>(testing::Text(data, size)));
  if (!dcp::ReadMetadata(*file, {}, &builder).ok()) return 0;
  const absl::StatusOr<Catalog> catalog = std::move(builder).Build();
  if (!catalog.ok()) return 0;
  for (const Catalog::Tensor& tensor : catalog->tensors()) {
    testing::Promised(catalog->FindTensor(tensor.name) == &tensor, "a tensor is found by its name");
    (void)catalog->CheckCover(tensor).ok();
    (void)DescribeChunks(*catalog, tensor);
    for (int64_t i = 0; i < tensor.num_chunks; ++i) {
      const Catalog::FileRange place = catalog->chunk(tensor, i).place;
      testing::Promised(place.at >= 0 && place.length >= 0 && place.at + place.length <= 1 << 20,
                        "a place in the file");
    }
  }
  return 0;
}
