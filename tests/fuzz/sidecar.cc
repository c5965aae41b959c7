// Any bytes as the content of a sidecar, under the hash that is right.
#include "checkpoint/source/sidecar.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reshard;
  const std::string content(testing::Text(data, size));
  (void)source::Sidecar::Parse(content).ok();
  const absl::StatusOr<source::Sidecar> sidecar = source::Sidecar::Parse(
      absl::StrCat("{\"content\":", content, ",\"hash\":\"", hash::ContentHash::Of(content).ToText(), "\"}\n"));
  if (!sidecar.ok()) return 0;
  for (const source::Sidecar::Chunk& chunk : sidecar->chunks) {
    testing::Promised(chunk.at >= 0 && chunk.length >= 0, "positions are not negative");
  }
  const absl::StatusOr<source::Sidecar> again = source::Sidecar::Parse(sidecar->ToJson());
  testing::Promised(again.ok() && again->ToJson() == sidecar->ToJson(), "what is written can be read");
  return 0;
}
