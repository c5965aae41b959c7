// Checkpoints that PyTorch wrote (fixtures/make_dcp.py), against the digests of what it put into them.
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "reshard/checkpoint/catalog.h"
#include "tests/catch.h"
#include "tests/checkpoint/convert/assemble.h"
#include "tests/checkpoint/convert/sha256.h"

namespace reshard::testing {
namespace {

const std::string kFixtures = RESHARD_SOURCE_DIR "/tests/checkpoint/fixtures/";

nlohmann::json Manifest() {
  std::ifstream in(kFixtures + "manifest.json");
  return nlohmann::json::parse(in);
}

std::vector<int64_t> Copy(absl::Span<const int64_t> numbers) { return {numbers.begin(), numbers.end()}; }

TEST_CASE("SHA-256 of known texts") {
  CHECK(Sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(Sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("Every tensor of every DCP fixture has the bytes that PyTorch put there") {
  int tensors = 0;
  const nlohmann::json manifest = Manifest();
  for (const auto& [name, fixture] : manifest.items()) {
    if (fixture["format"] != "dcp") continue;
    INFO(name);
    const absl::StatusOr<Catalog> catalog = ReadCatalog(kFixtures + name);
    REQUIRE(catalog.status().ToString() == "OK");
    CHECK(catalog->format() == CheckpointFormat::kDcp);
    CHECK(catalog->tensors().size() == fixture["tensors"].size());
    CHECK(catalog->byte_items().size() == fixture["bytes"].size());
    for (const auto& [key, want] : fixture["tensors"].items()) {
      INFO(key);
      const Catalog::Tensor* const tensor = catalog->FindTensor(key);
      REQUIRE(tensor != nullptr);
      CHECK(tensor->stored_dtype == "torch." + want["dtype"].get<std::string>());
      CHECK(Copy(tensor->shape) == want["shape"].get<std::vector<int64_t>>());
      REQUIRE(tensor->num_chunks == static_cast<int64_t>(want["chunks"].size()));
      for (int64_t i = 0; i < tensor->num_chunks; ++i) {
        const nlohmann::json& chunk = want["chunks"][i];
        CHECK(Copy(catalog->chunk(*tensor, i).offset) == chunk[0].get<std::vector<int64_t>>());
        CHECK(Copy(catalog->chunk(*tensor, i).size) == chunk[1].get<std::vector<int64_t>>());
      }
      CHECK(catalog->CheckCover(*tensor).ToString() == "OK");
      const absl::StatusOr<std::string> bytes = ReadTensor(*catalog, *tensor);
      REQUIRE(bytes.status().ToString() == "OK");
      CHECK(static_cast<int64_t>(bytes->size()) == tensor->bytes);
      CHECK(Sha256(*bytes) == want["sha256"].get<std::string>());
      ++tensors;
    }
    for (const Catalog::ByteItem& item : catalog->byte_items()) {
      const nlohmann::json& want = fixture["bytes"][std::string(item.name)];
      INFO(item.name);
      std::ifstream in(kFixtures + name + "/" + catalog->files()[item.place.file].path);
      std::string bytes(static_cast<size_t>(item.place.length), '\0');
      in.seekg(item.place.at);
      in.read(bytes.data(), item.place.length);
      CHECK(Sha256(bytes) == want["sha256"].get<std::string>());
    }
  }
  CHECK(tensors > 50);
}

TEST_CASE("Paths of nested containers") {
  const absl::StatusOr<Catalog> catalog = ReadCatalog(kFixtures + "grid2x3_threads");
  REQUIRE(catalog.ok());
  const std::vector<Catalog::PathStep>* const path = catalog->PathOf("model.list.1");
  REQUIRE(path != nullptr);
  CHECK(*path == std::vector<Catalog::PathStep>{std::string("model"), std::string("list"), int64_t{1}});
  CHECK(catalog->PathOf("model.list.2") == nullptr);
}

TEST_CASE("Random boxes of the fixtures") {
  std::mt19937_64 random(Seed());
  const nlohmann::json manifest = Manifest();
  for (const auto& [name, fixture] : manifest.items()) {
    if (fixture["format"] != "dcp") continue;
    const absl::StatusOr<Catalog> catalog = ReadCatalog(kFixtures + name);
    REQUIRE(catalog.ok());
    for (const Catalog::Tensor& tensor : catalog->tensors()) {
      const absl::StatusOr<std::string> dense = ReadTensor(*catalog, tensor);
      REQUIRE(dense.ok());
      for (int round = 0; round < 6; ++round) {
        std::vector<int64_t> offset, size;
        for (const int64_t n : tensor.shape) {
          offset.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(n + 1)));
          size.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(n - offset.back() + 1)));
        }
        const absl::StatusOr<std::string> box = ReadTensorBox(*catalog, tensor, offset, size);
        REQUIRE(box.ok());
        REQUIRE(*box == BoxOf(*dense, tensor.shape, SizeOf(*tensor.dtype), offset, size));
      }
    }
  }
}

}  // namespace
}  // namespace reshard::testing
