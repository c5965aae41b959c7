// checkpoint/catalog/parts.h: what files say of each other by their names.
#include "checkpoint/catalog/parts.h"

#include <string>
#include <vector>

#include "tests/catch.h"

namespace reshard::catalog {
namespace {

using Names = std::vector<std::string>;

bool Says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("parts: names") {
  const auto counted = ParsePartName("shard-00003-model-00002-of-00009.safetensors");
  REQUIRE(counted);
  CHECK(counted->number == 2);
  CHECK(counted->count == 9);
  CHECK(counted->shard == 3);
  CHECK(ParsePartName("model-00002-of-00009.safetensors")->shard == 0);
  CHECK(ParsePartName("consolidated.01.pth")->number == 1);
  CHECK(ParsePartName("model.rank_3.pt")->number == 3);
  CHECK(ParsePartName("rank0.pth")->series == ParsePartName("rank7.pth")->series);
  for (const char* name : {"model.safetensors", "frank_1.pt", "model-of-2.safetensors", "model-1-of-.safetensors",
                           "step-100.pt", "consolidated.pth", "rank.pt", "-99999999-of-99999999.bin"}) {
    INFO(name);
    CHECK_FALSE(ParsePartName(name));
  }
}

TEST_CASE("parts: what is missing") {
  CHECK(MissingParts(Names{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "x.safetensors"})
            .empty());
  CHECK(MissingParts(Names{"model-00000-of-00002.bin", "model-00001-of-00002.bin"}).empty());
  CHECK(MissingParts(Names{"model-00003-of-00009.safetensors", "model-00007-of-00009.safetensors"}) ==
        "2 of 9 parts are here; missing: model-00001-of-00009.safetensors, model-00002-of-00009.safetensors, "
        "model-00004-of-00009.safetensors, model-00005-of-00009.safetensors, model-00006-of-00009.safetensors and 2 "
        "more");
  // Not every shard has a part of every file.
  CHECK(MissingParts(
            Names{"shard-00001-model-00001-of-00002.safetensors", "shard-00002-model-00002-of-00002.safetensors"})
            .empty());
  CHECK(Says(MissingParts(Names{"shard-00001-model-00001-of-00002.safetensors"}), "1 of 2 parts are here"));
  CHECK(Says(MissingParts(
                 Names{"shard-00001-model-00001-of-00001.safetensors", "shard-00003-model-00001-of-00001.safetensors"}),
             "shard 2 is missing"));
}

TEST_CASE("parts: the others of one that was named") {
  const Names there = {"consolidated.00.pth", "consolidated.01.pth", "params.json"};
  CHECK(OtherParts("consolidated.00.pth", there) ==
        "\"consolidated.00.pth\" is one of 2 parts, \"consolidated.00.pth\" to \"consolidated.01.pth\"");
  CHECK(OtherParts("params.json", there).empty());
  CHECK(OtherParts("consolidated.00.pth", Names{"consolidated.00.pth"}).empty());
  CHECK(Says(OtherParts("pytorch_model-00001-of-00003.bin", Names{}), "is one of 3 parts"));
}

}  // namespace reshard::catalog
