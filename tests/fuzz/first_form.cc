// Any bytes behind the magic number of a file of torch.save's first form.
#include <filesystem>
#include <fstream>
#include <string>

#include "checkpoint/formats/torch_save/read.h"
#include "reshard/checkpoint/catalog.h"
#include "tests/checkpoint/formats/pickle_bytes.h"
#include "tests/checkpoint/io/temp_directory.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/read_tensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reshard;
  static const testing::TempDirectory dir(testing::TempDirectory::Where::kInMemory);
  const std::string magic = std::string("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 12);
  const std::string bytes = testing::pickled::Pickled(magic) + std::string(testing::Text(data, size));
  std::ofstream(dir / "0.pt", std::ios::binary) << bytes;
  const absl::StatusOr<Catalog> catalog = torch_save::ReadFile(dir / "0.pt", {});
  if (!catalog.ok()) {
    testing::Promised(!catalog.status().message().empty(), "a reason");
    return 0;
  }
  testing::CheckPlaces(*catalog, static_cast<int64_t>(bytes.size()));
  testing::ReadAll(dir / "0.pt");
  return 0;
}
