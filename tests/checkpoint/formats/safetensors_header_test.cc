// checkpoint/safetensors/header.h, dtypes.h and write_header.h: parsing, laying out, and that one undoes the other.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/formats/safetensors/dtypes.h"
#include "checkpoint/formats/safetensors/header.h"
#include "checkpoint/formats/safetensors/write_header.h"
#include "tests/catch.h"
#include "tests/checkpoint/formats/safetensors_file.h"
#include "tests/property.h"

namespace reshard {
namespace {

using Json = nlohmann::ordered_json;
using testing::SafetensorsBytes;
using testing::TemporaryDirectory;
using Pairs = std::vector<std::pair<std::string, std::string>>;

absl::StatusOr<safetensors::SafetensorsHeader> Parse(std::string_view json, int64_t data_bytes) {
  return safetensors::ParseSafetensorsHeader(json, data_bytes, {});
}

// The same file the way it is read from a disk.
absl::StatusOr<safetensors::SafetensorsFile> ReadBytes(const std::string& bytes) {
  const TemporaryDirectory directory;
  auto file = io::ReadFile::Open(directory.Write("a.safetensors", bytes));
  if (!file.ok()) return file.status();
  return safetensors::ReadSafetensorsHeader(**file, {});
}

TEST_CASE("safetensors header: what it says") {
  auto header =
      Parse(R"({"__metadata__":{"format":"pt","":"x"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[2,26]},)"
            R"( "a":{"data_offsets":[0,2],"shape":[],"dtype":"BF16"} }   )",
            26);
  REQUIRE(header.ok());
  REQUIRE(header->entries.size() == 2);
  CHECK(header->entries[0].name == "b");
  CHECK(header->entries[0].dtype == "F32");
  CHECK(header->entries[0].shape == std::vector<int64_t>{2, 3});
  CHECK(header->entries[0].begin == 2);
  CHECK(header->entries[0].end == 26);
  CHECK(header->entries[1].name == "a");
  CHECK(header->entries[1].shape.empty());
  CHECK(header->metadata == Pairs{{"format", "pt"}, {"", "x"}});
}

TEST_CASE("safetensors header: what else is right") {
  CHECK(Parse("{}", 0).ok());
  CHECK(Parse("{} \n\t", 0).ok());
  CHECK(Parse(R"({"__metadata__":null})", 0).ok());
  // Members that are not known, as the safetensors package has it.
  CHECK(Parse(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":{"deep":[1,{"shape":[2]}]}}})", 1).ok());
  // Without elements: where others begin or end, at the same place.
  CHECK(
      Parse(
          R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
          R"("c":{"dtype":"F32","shape":[3,0],"data_offsets":[4,4]},"d":{"dtype":"F64","shape":[0],"data_offsets":[4,4]}})",
          4)
          .ok());
  // Names are any text.
  auto names = Parse(
      R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"é\n\u0000/..":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
      2);
  REQUIRE(names.ok());
  CHECK(names->entries[0].name.empty());
  CHECK(names->entries[1].name == std::string("\xc3\xa9\n\0/..", 7));
  // Smaller than a byte, and not known at all: the length is carried.
  CHECK(Parse(R"({"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}})", 3).ok());
  CHECK(Parse(R"({"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", 3).ok());
  for (const char* none : {"f32", "", "hello", "os.system", "F32 ", "8F"}) {
    CHECK_FALSE(Parse(R"({"a":{"dtype":")" + std::string(none) + R"(","shape":[1],"data_offsets":[0,4]}})", 4).ok());
  }
  auto unknown = Parse(R"({"a":{"dtype":"F3","shape":[100],"data_offsets":[0,7]}})", 7);
  REQUIRE(unknown.ok());
  CHECK(unknown->entries[0].end == 7);
}

TEST_CASE("safetensors header: a file's") {
  const std::string json = R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]}})";
  auto file = ReadBytes(SafetensorsBytes(json, 5));
  REQUIRE(file.ok());
  CHECK(file->data_begin == static_cast<int64_t>(8 + json.size()));
  CHECK(file->header.entries.size() == 1);

  CatalogLimits limits;
  limits.metadata_bytes = 20;
  const TemporaryDirectory directory;
  auto open = io::ReadFile::Open(directory.Write("a", SafetensorsBytes(json, 5)));
  REQUIRE(open.ok());
  const absl::Status status = safetensors::ReadSafetensorsHeader(**open, limits).status();
  CHECK(absl::IsResourceExhausted(status));
  CHECK(status.message().find("20") != absl::string_view::npos);
}

TEST_CASE("safetensors dtypes: both ways") {
  std::set<std::string_view> names;
  for (const safetensors::SafetensorsDType& dtype : safetensors::SafetensorsDTypes()) {
    CHECK(names.insert(dtype.name).second);
    CHECK(safetensors::FindSafetensorsDType(dtype.name) == &dtype);
    if (!dtype.dtype) continue;
    CHECK(safetensors::FindSafetensorsDType(*dtype.dtype) == &dtype);
    CHECK(SizeOf(*dtype.dtype) * 8 == dtype.bits * dtype.packed());
    CHECK(dtype.packed() == (dtype.name == "F4" ? 2 : 1));
  }
  CHECK(safetensors::FindSafetensorsDType(DType::kC128) == nullptr);
  CHECK(safetensors::FindSafetensorsDType("f32") == nullptr);
  for (int i = 0; i < static_cast<int>(DType::kC128); ++i)
    CHECK(safetensors::FindSafetensorsDType(static_cast<DType>(i)) != nullptr);
}

TEST_CASE("safetensors layout: order, places and padding") {
  const std::vector<safetensors::SafetensorsTensor> tensors = {
      {"z", "U8", {3}}, {"b", "F32", {2}}, {"a", "F32", {}}, {"c", "I64", {1, 1}}, {"e", "F64", {0, 7}}};
  auto layout = safetensors::LayOutSafetensors(tensors, {});
  REQUIRE(layout.ok());
  const std::string json = layout->head.substr(8);
  CHECK(json.starts_with(
      R"({"c":{"dtype":"I64","shape":[1,1],"data_offsets":[0,8]},"e":{"dtype":"F64","shape":[0,7],"data_offsets":[8,8]},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[8,12]},"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]},)"
      R"("z":{"dtype":"U8","shape":[3],"data_offsets":[20,23]}})"));
  CHECK(layout->head.size() % 8 == 0);
  const auto head = static_cast<int64_t>(layout->head.size());
  CHECK(layout->bytes == head + 23);
  CHECK(layout->places[0].at == head + 20);
  CHECK(layout->places[0].length == 3);
  CHECK(layout->places[2].at == head + 8);

  CHECK(absl::IsInvalidArgument(safetensors::LayOutSafetensors({{{"a", "U8", {1}}, {"a", "U8", {1}}}}, {}).status()));
  CHECK(absl::IsInvalidArgument(safetensors::LayOutSafetensors({{{"__metadata__", "U8", {1}}}}, {}).status()));
  CHECK(absl::IsInvalidArgument(safetensors::LayOutSafetensors({{{"\xff", "U8", {1}}}}, {}).status()));
  CHECK(absl::IsInvalidArgument(safetensors::LayOutSafetensors({{{"a", "U8", {-1}}}}, {}).status()));
  CHECK(absl::IsInvalidArgument(safetensors::LayOutSafetensors({{{"a", "F4", {3}}}}, {}).status()));
  CHECK(absl::IsUnimplemented(safetensors::LayOutSafetensors({{{"a", "C128", {1}}}}, {}).status()));
  CHECK(absl::IsInvalidArgument(safetensors::LayOutSafetensors({}, Pairs{{"k", "1"}, {"k", "2"}}).status()));
  CHECK(absl::IsResourceExhausted(
      safetensors::LayOutSafetensors({{{"a", "U8", {int64_t{1} << 32, int64_t{1} << 31}}}}, {}).status()));
  const int64_t most = (int64_t{1} << 60) - 1;  // bytes whose bits still fit
  std::vector<safetensors::SafetensorsTensor> many;
  for (char c = 'a'; c < 'j'; ++c) many.push_back({std::string(1, c), "U8", {most}});
  CHECK(absl::IsResourceExhausted(safetensors::LayOutSafetensors(many, {}).status()));
  many.pop_back();
  many.back().shape[0] = 0;
  CHECK(safetensors::LayOutSafetensors(many, {}).ok());
}

TEST_CASE("safetensors layout: what is laid out is read back") {
  rc::prop("random tensors", [] {
    std::vector<safetensors::SafetensorsTensor> tensors;
    std::set<std::string> names;
    const auto count = *rc::gen::inRange(0, 12);
    for (int i = 0; i < count; ++i) {
      safetensors::SafetensorsTensor tensor;
      const std::vector<std::string> parts = {
          "a", ".", "\n", "\"", "\\", "\xc3\xa9", "\xf0\x9f\x90\x99", std::string(1, '\0'), "\x7f"};
      for (int n = *rc::gen::inRange(0, 6); n > 0; --n) tensor.name += *rc::gen::elementOf(parts);
      if (!names.insert(tensor.name).second) continue;
      const auto& dtype =
          safetensors::SafetensorsDTypes()[*rc::gen::inRange<size_t>(0, safetensors::SafetensorsDTypes().size())];
      tensor.dtype = std::string(dtype.name);
      for (int n = *rc::gen::inRange(0, 4); n > 0; --n) tensor.shape.push_back(*rc::gen::inRange(0, 5));
      if (dtype.bits < 8) tensor.shape.push_back(4);
      tensors.push_back(tensor);
    }
    auto layout = safetensors::LayOutSafetensors(tensors, Pairs{{"k", "v\n"}});
    RC_ASSERT(layout.ok());
    const auto head = static_cast<int64_t>(layout->head.size());
    auto header =
        safetensors::ParseSafetensorsHeader(std::string_view(layout->head).substr(8), layout->bytes - head, {});
    RC_ASSERT(header.ok());
    RC_ASSERT(header->metadata.size() == 1u);
    RC_ASSERT(header->entries.size() == tensors.size());
    for (const safetensors::SafetensorsHeader::Entry& entry : header->entries) {
      const auto found =
          std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == entry.name; });
      RC_ASSERT(found != tensors.end());
      RC_ASSERT(found->dtype == entry.dtype);
      RC_ASSERT(found->shape == entry.shape);
      const auto& place = layout->places[found - tensors.begin()];
      RC_ASSERT(place.at == head + entry.begin);
      RC_ASSERT(place.length == entry.end - entry.begin);
    }
    // In any order, the same file.
    std::reverse(tensors.begin(), tensors.end());
    RC_ASSERT(safetensors::LayOutSafetensors(tensors, Pairs{{"k", "v\n"}})->head == layout->head);
  });
}

TEST_CASE("safetensors layout: several files and their index") {
  using Runs = std::vector<std::pair<size_t, size_t>>;
  CHECK(safetensors::SplitIntoFiles({}, 10) == Runs{});
  CHECK(safetensors::SplitIntoFiles({4, 6, 1, 20, 0, 3}, 10) == Runs{{0, 2}, {2, 3}, {3, 4}, {4, 6}});
  CHECK(safetensors::SplitIntoFiles({0, 0}, 0) == Runs{{0, 2}});
  CHECK(safetensors::SplitIntoFiles({1, INT64_MAX, 1}, INT64_MAX) == Runs{{0, 1}, {1, 2}, {2, 3}});
  CHECK(safetensors::SafetensorsFileName("model", 1, 11) == "model-00002-of-00011.safetensors");
  CHECK(safetensors::SafetensorsFileName("m", 0, 123456) == "m-00001-of-123456.safetensors");
  CHECK(safetensors::SafetensorsFileName("adapter_model", 0, 1) == "adapter_model.safetensors");
  CHECK(safetensors::SafetensorsIndexName("model") == safetensors::kSafetensorsIndexName);

  auto index = safetensors::SafetensorsIndex(Pairs{{"b", "two"}, {"a", "one"}, {"\n", "one"}}, 17);
  REQUIRE(index.ok());
  CHECK(*index ==
        "{\n  \"metadata\": {\n    \"total_size\": 17\n  },\n  \"weight_map\": {\n    \"\\n\": \"one\",\n"
        "    \"a\": \"one\",\n    \"b\": \"two\"\n  }\n}\n");
  CHECK(Json::parse(*safetensors::SafetensorsIndex({}, 0))["weight_map"].empty());
  CHECK(absl::IsInvalidArgument(safetensors::SafetensorsIndex(Pairs{{"a", "x"}, {"a", "y"}}, 0).status()));
  CHECK(absl::IsInvalidArgument(safetensors::SafetensorsIndex(Pairs{{"\xc3", "x"}}, 0).status()));
}

}  // namespace
}  // namespace reshard
