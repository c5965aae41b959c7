// Any bytes as a safetensors file.
#include <set>
#include <string>

#include "checkpoint/formats/safetensors/header.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reshard;
  const std::unique_ptr<io::ReadFile> file = testing::MemoryFile(testing::Text(data, size));
  const absl::StatusOr<safetensors::SafetensorsFile> read = safetensors::ReadSafetensorsHeader(*file, {});
  // The header alone too: most inputs have a length that is wrong.
  (void)safetensors::ParseSafetensorsHeader(testing::Text(data, size), 12, {}).ok();
  if (!read.ok()) return 0;
  std::set<std::string> names;
  int64_t bytes = 0;
  for (const safetensors::SafetensorsHeader::Entry& entry : read->header.entries) {
    testing::Promised(names.insert(entry.name).second, "names are unique");
    testing::Promised(entry.begin <= entry.end, "a range of data");
    bytes += entry.end - entry.begin;
  }
  testing::Promised(read->data_begin + bytes == static_cast<int64_t>(size), "the entries are all of the data");
  return 0;
}
