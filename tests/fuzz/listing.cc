// Any bytes as a listing, beside one file with elements, up to whether chunks cover their tensors.
#include <filesystem>
#include <fstream>
#include <utility>

#include "checkpoint/formats/listing/format.h"
#include "checkpoint/formats/listing/read.h"
#include "tests/checkpoint/io/temp_directory.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/read_tensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reshard;
  constexpr int64_t kBytes = 1 << 20;
  static const testing::TempDirectory dir;
  static const bool made = [] {
    std::ofstream(dir / "elements") << 'x';
    std::filesystem::resize_file(dir / "elements", kBytes);
    return true;
  }();
  testing::Promised(made, "a file of elements");
  const std::string listing = dir / std::string(listing::kFileName);
  std::ofstream(listing, std::ios::binary) << testing::Text(data, size);
  const absl::StatusOr<Catalog> catalog = listing::ReadListing(dir.path(), {});
  if (!catalog.ok()) return 0;
  testing::CheckPlaces(*catalog, kBytes);
  testing::ReadAll(dir.path());
  return 0;
}
