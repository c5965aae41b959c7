#include <string>

#include "checkpoint/hash/hash.h"
#include "checkpoint/into_store/store_job.h"
#include "tests/catch.h"

namespace reshard {
namespace {

TEST_CASE("object record: read back, unless a character is another one") {
  into_store::ObjectRecord record;
  record.object = {123, "\"etag\n\x01\""};
  for (int i = 0; i < 3; ++i) record.hashes.push_back(hash::ContentHash::Of(std::string(static_cast<size_t>(i), 'x')));
  for (const char* const version : {"\"etag\n\x01\"", ""}) {
    record.object.version = version;
    const std::string text = record.ToText("id");
    into_store::ObjectRecord read;
    REQUIRE(into_store::ObjectRecord::FromText(text, "id", &read));
    CHECK(read.object.bytes == 123);
    CHECK(read.object.version == version);
    CHECK(read.hashes == record.hashes);
    CHECK_FALSE(into_store::ObjectRecord::FromText(text, "other", &read));
    for (size_t i = 0; i < text.size(); ++i) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ 1);
      CHECK_FALSE(into_store::ObjectRecord::FromText(damaged, "id", &read));
      CHECK_FALSE(into_store::ObjectRecord::FromText(text.substr(0, i), "id", &read));
    }
  }
}

}  // namespace
}  // namespace reshard
