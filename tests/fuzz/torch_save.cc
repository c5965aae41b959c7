// Any bytes as the description of a file of torch.save with two storages, read as a file of its own and as those of two
// ranks; archive and checksums are right.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "checkpoint/formats/torch_save/read.h"
#include "reshard/checkpoint/catalog.h"
#include "tests/checkpoint/formats/zip_bytes.h"
#include "tests/checkpoint/io/temp_directory.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/read_tensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reshard;
  static const testing::TempDirectory dir(testing::TempDirectory::Where::kInMemory);
  static const std::string elements(64, '\x3f');
  const std::string bytes =
      testing::ZipBytes({{.name = "a/data.pkl", .content = std::string(testing::Text(data, size))},
                         {.name = "a/data/0", .content = elements},
                         {.name = "a/data/1", .content = elements.substr(0, 24)}});
  const std::vector<torch_save::RankFile> files = {{"0.pt", "", 0}, {"1.pt", "", 1}};
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
