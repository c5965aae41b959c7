// What stands in a checkpoint of Orbax, read here as Zarr says: a chunk of the grid is a file, row-major. That Orbax
// itself restores it is for tests/sources.
#include "checkpoint/output/orbax_output.h"

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "json/document.h"
#include "reshard/checkpoint/convert.h"
#include "reshard/checkpoint/verify.h"
#include "reshard/layout/checked.h"
#include "tests/catch.h"
#include "tests/checkpoint/formats/safetensors_file.h"
#include "tests/file_bytes.h"
#include "tests/property.h"

namespace reshard {
namespace {

using testing::FileBytes;
using testing::TemporaryDirectory;
using Numbers = std::vector<int64_t>;

int64_t Product(const Numbers& numbers) {
  int64_t product = 1;
  for (const int64_t number : numbers) product *= number;
  return product;
}

Numbers NumbersOf(const json::Value& value) {
  Numbers out;
  for (size_t i = 0; i < value.size(); ++i) out.push_back(*value.at(i).Count());
  return out;
}

// The elements of an array of bytes, by its .zarray.
std::string Assembled(const std::string& folder, const Numbers& shape) {
  const std::string text = FileBytes(folder + "/.zarray");
  const auto document = json::Document::Parse(text);
  REQUIRE(document.ok());
  CHECK(NumbersOf(*document->root().Find("shape")) == shape);
  const Numbers chunk = NumbersOf(*document->root().Find("chunks"));
  REQUIRE(chunk.size() == shape.size());
  std::string out(static_cast<size_t>(Product(shape)), '?');
  for (int64_t at = 0; at < static_cast<int64_t>(out.size()); ++at) {
    Numbers number(shape.size());
    int64_t rest = at, within = 0, stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      const int64_t index = rest % shape[d];
      rest /= shape[d];
      number[d] = index / chunk[d];
      within += index % chunk[d] * stride;
      stride *= chunk[d];
    }
    const std::string bytes = FileBytes(folder + "/" + (shape.empty() ? "0" : absl::StrJoin(number, ".")));
    REQUIRE(static_cast<int64_t>(bytes.size()) == Product(chunk));
    out[static_cast<size_t>(at)] = bytes[static_cast<size_t>(within)];
  }
  return out;
}

struct Entry {
  std::string name, dtype;
  Numbers shape;
  std::string bytes;
};

std::string FileOf(const std::vector<Entry>& entries) {
  std::string header, data;
  for (const Entry& entry : entries) {
    absl::StrAppend(&header, header.empty() ? "{" : ",", "\"", entry.name, "\":{\"dtype\":\"", entry.dtype,
                    "\",\"shape\":[", absl::StrJoin(entry.shape, ","), "],\"data_offsets\":[", data.size(), ",",
                    data.size() + entry.bytes.size(), "]}");
    data += entry.bytes;
  }
  return testing::SafetensorsBytes(header + "}", 0) + data;
}

absl::Status Converted(const std::string& source, const std::string& destination, int64_t file_bytes = 0,
                       const std::optional<LayoutRules>& rules = std::nullopt) {
  ConvertOptions options;
  options.format = CheckpointFormat::kOrbax;
  options.file_bytes = file_bytes;
  options.verify = true;
  return Convert(source, destination, rules, options).status();
}

TEST_CASE("the shape of a chunk") {
  struct Row {
    Numbers shape, shard;
    int64_t element, most;
    Numbers chunk;
  };
  for (const Row& row :
       {Row{{8192, 80, 28672}, {8192, 80, 28672}, 2, 64 << 20, {8, 80, 28672}}, Row{{11}, {11}, 4, 16, {4}},
        Row{{10}, {10}, 4, 16, {2}}, Row{{}, {}, 8, 1, {}}, Row{{0, 5}, {0, 5}, 4, 1 << 20, {1, 5}},
        Row{{131, 7}, {131, 7}, 8, 2048, {36, 7}},  // no divisor but 1: uneven
        Row{{262, 7}, {131, 7}, 8, 2048, {1, 7}},   // of a shard: even, whatever that is
        Row{{12, 6, 100}, {3, 6, 50}, 1, 60, {1, 1, 50}}, Row{{4, 4}, {4, 4}, 4, 1 << 20, {4, 4}}}) {
    INFO(absl::StrJoin(row.shape, ","));
    CHECK(output::ChunkShape(row.shape, row.shard, row.element, row.most) == row.chunk);
  }
}

TEST_CASE("every element stands where Zarr says") {
  std::mt19937_64 random(testing::Seed());
  for (int trial = 0; trial < 60; ++trial) {
    INFO("seed " << testing::Seed() << ", trial " << trial);
    const TemporaryDirectory dir;
    Numbers shape(random() % 4), parts;
    for (int64_t& size : shape) {
      parts.push_back(int64_t{1} << (random() % 3));
      size = parts.back() * static_cast<int64_t>(1 + random() % 3);
    }
    std::string bytes(static_cast<size_t>(Product(shape)), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const std::string source = dir.Write("in.safetensors", FileOf({{"a.b", "U8", shape, bytes}}));
    std::optional<LayoutRules> rules;
    if (trial % 2 == 1) {
      std::string mesh, layout;
      for (size_t d = 0; d < shape.size(); ++d) {
        absl::StrAppend(&mesh, d == 0 ? "" : ",", "m", d, ":", parts[d]);
        absl::StrAppend(&layout, d == 0 ? "" : ", ", "<m", d, ">");
      }
      rules =
          *LayoutRules::ForAll(absl::StrCat("{", shape.empty() ? "m:1" : mesh, "}"), absl::StrCat("[", layout, "]"));
    }
    const absl::Status done = Converted(source, dir.path("out"), static_cast<int64_t>(1 + random() % 40), rules);
    INFO(done);
    REQUIRE(done.ok());
    CHECK(Assembled(dir.path("out/a.b"), shape) == bytes);
  }
}

TEST_CASE("chunks are parts of the shards that the rules say") {
  const TemporaryDirectory dir;
  const std::string source = dir.Write("in.safetensors", FileOf({{"w", "U8", {8, 6}, std::string(48, 'x')}}));
  REQUIRE(Converted(source, dir.path("out"), 0, *LayoutRules::ForAll("{a:4,b:2}", "[<a>, <b>]")).ok());
  CHECK(std::filesystem::exists(dir.path("out/w/3.1")));
  CHECK(FileBytes(dir.path("out/w/3.1")).size() == 6);
  const absl::Status uneven = Converted(source, dir.path("not"), 0, *LayoutRules::ForAll("{a:4}", "[*, <a>]"));
  CHECK(std::string(uneven.message()).find("equal boxes") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(dir.path("not")));
}

TEST_CASE("a tensor without elements has one chunk, which is empty, however long its rows would be") {
  const TemporaryDirectory dir;
  const std::string source = dir.Write("in.safetensors", FileOf({{"e", "F32", {0, int64_t{1} << 30}, ""}}));
  const absl::Status done = Converted(source, dir.path("out"));
  INFO(done);
  REQUIRE(done.ok());
  CHECK(std::filesystem::file_size(dir.path("out/e/0.0")) == 0);
}

TEST_CASE("names that are not paths of a tree, and elements that Zarr does not have, are refused") {
  using Names = std::vector<std::string>;
  for (const Names& names : {Names{"a", "a.b"},
                             {"a..b"},
                             {".a"},
                             {"_METADATA"},
                             {"d"},
                             {"ocdbt.process_0"},
                             {"a/b"},
                             {std::string(300, 'n')}}) {
    INFO(absl::StrJoin(names, " "));
    const TemporaryDirectory dir;
    std::vector<Entry> entries;
    for (const std::string& name : names) entries.push_back({name, "U8", {1}, "x"});
    const std::string source = dir.Write("in.safetensors", FileOf(entries));
    const absl::Status refused = Converted(source, dir.path("out"));
    CHECK(absl::IsInvalidArgument(refused));
    CHECK_FALSE(std::filesystem::exists(dir.path("out")));
  }
  const TemporaryDirectory dir;
  const std::string source = dir.Write("in.safetensors", FileOf({{"e", "F8_E8M0", {1}, "x"}}));
  const absl::Status refused = Converted(source, dir.path("out"));
  CHECK(std::string(refused.message()).find("F8_E8M0, which Zarr does not have") != std::string::npos);
}

}  // namespace
}  // namespace reshard
