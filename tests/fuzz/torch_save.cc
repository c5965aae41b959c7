// Any bytes as the description of a file of torch.save with two storages, read as a file of its own and as those of two
// ranks; archive and checksums are right.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "checkpoint/formats/torch_save/read.h"
#include "checkpoint/source/source.h"
#include "reshard/checkpoint/catalog.h"
#include "tests/checkpoint/formats/zip_bytes.h"
#include "tests/checkpoint/io/temp_directory.h"
#include "tests/fuzz/fuzz.h"

namespace reshard::testing {
namespace {

void CheckPlaces(const Catalog& catalog, int64_t bytes) {
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    Promised(catalog.FindTensor(tensor.name) == &tensor, "a tensor is found by its name");
    for (int64_t i = 0; i < tensor.num_chunks; ++i) {
      const Catalog::Place place = catalog.chunk(tensor, i).place;
      Promised(place.at >= 0 && place.length >= 0 && place.at + place.length <= bytes, "a place in the file");
    }
    (void)catalog.CheckCover(tensor).ok();
  }
}

void ReadAll(const std::string& path) {
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

}  // namespace
}  // namespace reshard::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reshard;
  static const testing::TempDirectory dir(testing::TempDirectory::Where::kInMemory);
  static const std::string elements(64, '\x3f');
  const std::string bytes =
      testing::ZipBytes({{.name = "a/data.pkl", .content = std::string(testing::Text(data, size))},
                         {.name = "a/data/0", .content = elements},
                         {.name = "a/data/1", .content = elements.substr(0, 24)}});
  const std::vector<torch_save::RankFile> files = {{"0.pt", ""}, {"1.pt", ""}};
  for (const torch_save::RankFile& file : files) std::ofstream(dir / file.name, std::ios::binary) << bytes;
  const auto length = static_cast<int64_t>(bytes.size());
  const absl::StatusOr<Catalog> of_ranks = torch_save::ReadRankFiles(dir.path(), files, {});
  if (of_ranks.ok()) testing::CheckPlaces(*of_ranks, length);
  const absl::StatusOr<Catalog> alone = torch_save::ReadFile(dir / "0.pt", {});
  if (!alone.ok()) return 0;
  testing::CheckPlaces(*alone, length);
  testing::ReadAll(dir / "0.pt");
  return 0;
}
