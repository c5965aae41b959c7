// checkpoint/safetensors/read.h: one file, several, an index, shards of PyTorch's Hugging Face storage.
#include <filesystem>

#include "checkpoint/formats/safetensors/read.h"
#include "reshard/checkpoint/describe.h"
#include "tests/catch.h"
#include "tests/checkpoint/formats/safetensors_file.h"

namespace reshard {
namespace {

using testing::SafetensorsBytes;
using testing::TemporaryDirectory;

// A file with one tensor of bytes, and maybe where in a larger tensor it begins.
std::string OneTensor(const std::string& name, const std::string& shape, int64_t bytes, const std::string& offsets = "",
                      const std::string& dtype = "U8") {
  std::string json = "{";
  if (!offsets.empty()) {
    json += R"("__metadata__":{"DCP_SHARDING_INFO":"{\")" + name + R"(\":{\"saved_offsets\":)" + offsets +
            R"(}}","DCP_VERSION":"1.0","format":"pt"},)";
  }
  json += "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[0,)" +
          std::to_string(bytes) + "]}}";
  return SafetensorsBytes(json, bytes);
}

std::string Fixture(const std::string& name) {
  return std::string(RESHARD_SOURCE_DIR "/tests/checkpoint/fixtures/") + name;
}

absl::StatusOr<Catalog> Read(const std::string& path) { return ReadCatalog(path, {}); }

void CheckError(const absl::Status& status, absl::StatusCode code, std::string_view part) {
  INFO(status);
  CHECK(status.code() == code);
  CHECK(std::string(status.message()).find(part) != std::string::npos);
}

TEST_CASE("safetensors: a single file, by its path, a link to it, and its directory") {
  const TemporaryDirectory dir;
  const std::string file = dir.Write(
      "m.safetensors",
      SafetensorsBytes(
          R"({"__metadata__":{"format":"pt"},"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[1,13]},)"
          R"("flag":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]},"q":{"dtype":"F4","shape":[2],"data_offsets":[13,14]}})",
          14));
  std::filesystem::create_directory(dir.path("links"));
  std::filesystem::create_symlink("../m.safetensors", dir.path("links/n.safetensors"));
  std::filesystem::create_directory_symlink("links", dir.path("again"));
  for (const std::string& path :
       {file, dir.path(), dir.path() + "/", dir.path("links/n.safetensors"), dir.path("links"), dir.path("again")}) {
    INFO(path);
    auto catalog = Read(path);
    REQUIRE(catalog.ok());
    CHECK(catalog->format() == CheckpointFormat::kSafetensors);
    REQUIRE(catalog->files().size() == 1);
    CHECK(catalog->files()[0].bytes == static_cast<int64_t>(std::filesystem::file_size(file)));
    REQUIRE(catalog->tensors().size() == 3);
    CHECK(catalog->byte_items().empty());
    CHECK(catalog->notes() == std::vector<std::pair<std::string, std::string>>{{"format", "pt"}});
    const Catalog::Tensor* w = catalog->FindTensor("w");
    REQUIRE(w != nullptr);
    CHECK(w->dtype == DType::kBF16);
    CHECK(w->stored_dtype == "BF16");
    CHECK(w->bytes == 12);
    REQUIRE(w->num_chunks == 1);
    const Catalog::Chunk chunk = catalog->chunk(*w, 0);
    CHECK(chunk.place.at == static_cast<int64_t>(std::filesystem::file_size(file)) - 13);
    CHECK(chunk.place.length == 12);
    CHECK(catalog->CheckCover(*w).ok());
    const Catalog::Tensor* q = catalog->FindTensor("q");
    REQUIRE(q != nullptr);
    CHECK(q->dtype == DType::kF4E2M1x2);
    CHECK(q->shape == absl::MakeConstSpan({int64_t{1}}));
    CHECK(q->stored_dtype == "F4");
    CHECK(catalog->chunk(*q, 0).place.length == 1);
  }
}

TEST_CASE("safetensors: nothing there") {
  const TemporaryDirectory dir;
  CheckError(Read(dir.path("none")).status(), absl::StatusCode::kNotFound, "none");
  CheckError(Read(dir.path()).status(), absl::StatusCode::kNotFound, "is not a checkpoint");
  std::filesystem::create_symlink("nowhere", dir.path("dangling"));
  CheckError(Read(dir.path("dangling")).status(), absl::StatusCode::kNotFound, "dangling");
  dir.Write("sharded/other.txt", "");
  CheckError(Read(dir.path()).status(), absl::StatusCode::kNotFound, "is not a checkpoint");
}

TEST_CASE("safetensors: several files without an index") {
  const TemporaryDirectory dir;
  dir.Write("1.safetensors", OneTensor("a", "[4]", 4));
  dir.Write("2.safetensors", OneTensor("b", "[2,2]", 4));
  auto catalog = Read(dir.path());
  REQUIRE(catalog.ok());
  CHECK(catalog->tensors().size() == 2);
  dir.Write("3.safetensors", OneTensor("a", "[4]", 4));
  CheckError(Read(dir.path()).status(), absl::StatusCode::kDataLoss, "several files have it");
}

TEST_CASE("safetensors: an index") {
  const TemporaryDirectory dir;
  dir.Write("1.safetensors", OneTensor("a", "[4]", 4));
  dir.Write("x/2.safetensors", OneTensor("b", "[2,2]", 4));
  dir.Write("consolidated.safetensors", OneTensor("a", "[9]", 9));  // the same model once more: not in the index
  const auto index = [&](const std::string& json) { dir.Write("model.safetensors.index.json", json); };
  index(R"({"metadata":{"total_size":8},"weight_map":{"a":"1.safetensors","b":"x/2.safetensors"}})");
  auto catalog = Read(dir.path());
  REQUIRE(catalog.ok());
  CHECK(catalog->files().size() == 2);
  REQUIRE(catalog->tensors().size() == 2);
  CHECK(catalog->FindTensor("a")->shape == absl::Span<const int64_t>({4}));

  index(R"({"weight_map":{"a":"consolidated.safetensors","b":"x/2.safetensors"}})");
  CHECK(Read(dir.path())->FindTensor("a")->shape == absl::Span<const int64_t>({9}));
  // Both files are named and have a tensor: programs that read every file would take either.
  dir.Write(
      "two.safetensors",
      SafetensorsBytes(
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"c":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
          3));
  index(R"({"weight_map":{"c":"two.safetensors","a":"1.safetensors"}})");
  CheckError(Read(dir.path()).status(), absl::StatusCode::kDataLoss, "another of its files has it, too");
  // What the files have beyond the index is theirs too, unless it cannot be told which counts.
  index(R"({"weight_map":{"c":"two.safetensors"}})");
  CHECK(Read(dir.path())->tensors().size() == 2);

  const auto refused = [&](const std::string& json, absl::StatusCode code, std::string_view part) {
    INFO(json);
    index(json);
    CheckError(Read(dir.path()).status(), code, part);
  };
  refused(R"({"weight_map":{"a":"1.safetensors","zz":"x/2.safetensors"}})", absl::StatusCode::kDataLoss, "\"zz\"");
  refused(R"({"weight_map":{"a":"x/2.safetensors"}})", absl::StatusCode::kDataLoss, "none of that name");
  refused(R"({"weight_map":{"a":"gone.safetensors"}})", absl::StatusCode::kDataLoss, "gone.safetensors");
  refused(R"({"weight_map":{"a":"../1.safetensors"}})", absl::StatusCode::kInvalidArgument, "leaves its directory");
  refused(R"({"weight_map":{"a":"x/../1.safetensors"}})", absl::StatusCode::kInvalidArgument, "leaves its directory");
  refused(R"({"weight_map":{"a":"/etc/passwd"}})", absl::StatusCode::kInvalidArgument, "absolute");
  refused(R"({"weight_map":{"a":"1.safetensors\u0000.x"}})", absl::StatusCode::kInvalidArgument, "NUL");
  refused(R"({"weight_map":{"a":""}})", absl::StatusCode::kInvalidArgument, "empty");
  refused(R"({"weight_map":{"a":"x"}})", absl::StatusCode::kDataLoss, "regular");
  refused(R"({"weight_map":{"a":7}})", absl::StatusCode::kDataLoss, "not text");
  refused(R"({"weight_map":{"a":"1.safetensors","a":"1.safetensors"}})", absl::StatusCode::kDataLoss, "twice");
  refused(R"({"weight_map":[]})", absl::StatusCode::kDataLoss, "weight_map is not a JSON object");
  refused(R"({"metadata":{}})", absl::StatusCode::kDataLoss, "no weight_map");
  refused(R"([])", absl::StatusCode::kDataLoss, "not a JSON object");
  refused(R"({"weight_map":{"a")", absl::StatusCode::kDataLoss, "not JSON at byte");
  refused("", absl::StatusCode::kDataLoss, "not JSON at byte");
}

TEST_CASE("safetensors: several indices") {
  const TemporaryDirectory dir;
  dir.Write("1.safetensors", OneTensor("a", "[4]", 4));
  dir.Write("2.safetensors", OneTensor("b", "[4]", 4));
  dir.Write("other.safetensors.index.json", R"({"weight_map":{"a":"1.safetensors"}})");
  CHECK(Read(dir.path())->FindTensor("b") == nullptr);
  dir.Write("third.safetensors.index.json", R"({"weight_map":{"b":"2.safetensors"}})");
  CheckError(Read(dir.path()).status(), absl::StatusCode::kInvalidArgument, "2 index files");
  dir.Write("model.safetensors.index.json", R"({"weight_map":{"b":"2.safetensors"}})");
  CHECK(Read(dir.path())->FindTensor("a") == nullptr);
}

TEST_CASE("safetensors: shards are merged") {
  const TemporaryDirectory dir;
  dir.Write("shard-1.safetensors", OneTensor("w", "[2,3]", 6, "[0,0]"));
  dir.Write("shard-2.safetensors", OneTensor("w", "[1,3]", 3, "[2,0]"));
  dir.Write("shard-3.safetensors", OneTensor("w", "[0,3]", 0, "[3,0]"));
  auto catalog = Read(dir.path());
  REQUIRE(catalog.ok());
  REQUIRE(catalog->tensors().size() == 1);
  const Catalog::Tensor& w = catalog->tensors()[0];
  CHECK(w.shape == absl::Span<const int64_t>({3, 3}));
  CHECK(w.bytes == 9);
  CHECK(w.num_chunks == 3);
  CHECK(catalog->CheckCover(w).ok());
  CHECK(DescribeChunks(*catalog, w) == "row blocks of 2");
  CHECK(catalog->notes().size() == 1);

  const auto refused = [&](const std::string& file, absl::StatusCode code, std::string_view part) {
    dir.Write("shard-4.safetensors", file);
    CheckError(Read(dir.path()).status(), code, part);
  };
  refused(OneTensor("w", "[2]", 2, "[0]"), absl::StatusCode::kDataLoss, "rank");
  refused(OneTensor("w", "[1,3]", 3, "[2]"), absl::StatusCode::kDataLoss, "rank");
  refused(OneTensor("w", "[1,3]", 3), absl::StatusCode::kDataLoss, "several files have it");
  refused(OneTensor("w", "[1,3]", 3, "[0,-1]"), absl::StatusCode::kDataLoss, "not a whole number");
  refused(OneTensor("w", "[1,3]", 3, "[0,1.0]"), absl::StatusCode::kDataLoss, "not a whole number");
  refused(OneTensor("w", "[1,3]", 3, "{}"), absl::StatusCode::kDataLoss, "is not a list");
  refused(OneTensor("w", "[1,3]", 3, "[["), absl::StatusCode::kDataLoss, "DCP_SHARDING_INFO");
  refused(OneTensor("w", "[1,3]", 3, "[9223372036854775807,0]"), absl::StatusCode::kDataLoss, "2^63");
  refused(OneTensor("w", "[1,3]", 3, "[4611686018427387904,0]"), absl::StatusCode::kDataLoss, "overflow");
  refused(OneTensor("w", "[1,3]", 3, "[2,0]", "I8"), absl::StatusCode::kDataLoss, "\"I8\"");
  // Shards that overlap or leave something out are for CheckCover.
  dir.Write("shard-4.safetensors", OneTensor("w", "[1,3]", 3, "[4,0]"));
  catalog = Read(dir.path());
  REQUIRE(catalog.ok());
  CHECK(absl::IsDataLoss(catalog->CheckCover(catalog->tensors()[0])));
  CHECK(DescribeChunks(*catalog, catalog->tensors()[0]) == "3 boxes, no grid");
}

TEST_CASE("safetensors: sharding information about a tensor that is not there") {
  const TemporaryDirectory dir;
  dir.Write(
      "1.safetensors",
      SafetensorsBytes(
          R"({"__metadata__":{"DCP_SHARDING_INFO":"{\"v\":{\"saved_offsets\":[0]}}"},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          1));
  CheckError(Read(dir.path()).status(), absl::StatusCode::kDataLoss, "\"v\"");
}

TEST_CASE("safetensors: what PyTorch's Hugging Face storage writes") {
  for (const char* name : {"hf_sharded", "hf_consolidated", "hf_consolidated/sharded"}) {
    INFO(name);
    auto catalog = Read(Fixture(name));
    REQUIRE(catalog.ok());
    const bool whole = std::string_view(name) == "hf_consolidated";
    CHECK(catalog->files().size() == (whole ? 2 : 4));
    REQUIRE(catalog->tensors().size() == 3);
    for (const Catalog::Tensor& tensor : catalog->tensors()) {
      CHECK(tensor.num_chunks == (whole ? 1 : 2));
      CHECK(catalog->CheckCover(tensor).ok());
    }
    const Catalog::Tensor* embed = catalog->FindTensor("model.embed.weight");
    const Catalog::Tensor* proj = catalog->FindTensor("model.proj.weight");
    const Catalog::Tensor* norm = catalog->FindTensor("model.norm.weight");
    REQUIRE((embed && proj && norm));
    CHECK(embed->shape == absl::Span<const int64_t>({21, 8}));
    CHECK(embed->dtype == DType::kBF16);
    CHECK(proj->shape == absl::Span<const int64_t>({8, 14}));
    CHECK(DescribeChunks(*catalog, *embed) == (whole ? "whole" : "row blocks of 11"));
    CHECK(DescribeChunks(*catalog, *proj) == (whole ? "whole" : "column blocks of 7"));
    CHECK(DescribeChunks(*catalog, *norm) == (whole ? "whole" : "blocks of 4"));
  }
  // Only the shards: consolidation did not happen.
  const TemporaryDirectory dir;
  std::filesystem::copy(Fixture("hf_sharded"), dir.path("sharded"));
  auto catalog = Read(dir.path());
  REQUIRE(catalog.ok());
  CHECK(catalog->files()[0].path == "sharded/shard-00001-model-00001-of-00002.safetensors");
}

TEST_CASE("chunks in a few words") {
  const TemporaryDirectory dir;
  const auto words = [&](const std::vector<std::pair<std::string, std::string>>& boxes) {
    std::filesystem::remove_all(dir.path("sharded"));
    int n = 0;
    for (const auto& [offsets, shape] : boxes) {
      int64_t bytes = 1;
      for (const char c : shape) bytes *= c >= '0' && c <= '9' ? c - '0' : 1;
      dir.Write("sharded/" + std::to_string(n++) + ".safetensors", OneTensor("w", shape, bytes, offsets));
    }
    auto catalog = Read(dir.path());
    REQUIRE(catalog.ok());
    return DescribeChunks(*catalog, catalog->tensors()[0]);
  };
  CHECK(words({{"[]", "[]"}}) == "whole");
  CHECK(words({{"[0,0]", "[2,0]"}, {"[2,0]", "[2,0]"}}) == "whole");
  CHECK(words({{"[0,0]", "[2,2]"}, {"[0,2]", "[2,1]"}, {"[2,0]", "[2,2]"}, {"[2,2]", "[2,1]"}}) == "2x2 boxes");
  CHECK(words({{"[0,0,0]", "[2,2,2]"}, {"[0,2,0]", "[2,1,2]"}}) == "1x2x1 boxes");
  CHECK(words({{"[0,0,0]", "[2,2,2]"}, {"[0,0,2]", "[2,2,2]"}}) == "column blocks of 2");
  CHECK(words({{"[0,0]", "[2,2]"}, {"[0,2]", "[2,1]"}, {"[2,0]", "[2,3]"}}) == "3 boxes, no grid");
  CHECK(words({{"[0]", "[2]"}, {"[1]", "[2]"}}) == "2 boxes, no grid");
  CHECK(words({{"[0]", "[2]"}, {"[3]", "[2]"}}) == "2 boxes, no grid");
  CHECK(words({{"[1]", "[2]"}}) == "1 boxes, no grid");
  CHECK(words({{"[0,0]", "[1,1]"}, {"[0,0]", "[1,1]"}, {"[1,1]", "[1,1]"}, {"[0,1]", "[1,1]"}}) == "4 boxes, no grid");
}

}  // namespace
}  // namespace reshard
