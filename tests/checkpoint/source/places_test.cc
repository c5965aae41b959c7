// Which place of `.metadata` is which chunk's: by the number that comes with it where that is right, by the offset
// where it is not, as PyTorch has it.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/formats/dcp/write_metadata.h"
#include "reshard/checkpoint/catalog.h"
#include "tests/catch.h"
#include "tests/checkpoint/io/temp_directory.h"

namespace reshard::testing {
namespace {

constexpr int64_t kChunks = 100;

// `.metadata` of two tensors of kChunks chunks each; chunk i of tensor t is at byte 1000 t + i.
std::string Metadata() {
  const std::vector<int64_t> shape = {kChunks, 4};
  const std::vector<int64_t> size = {1, 4};
  std::vector<std::vector<int64_t>> offsets;
  for (int64_t i = 0; i < kChunks; ++i) offsets.push_back({i, 0});
  std::vector<dcp::MetadataTensor> tensors;
  for (int64_t t = 0; t < 2; ++t) {
    dcp::MetadataTensor tensor{t == 0 ? "a" : "b", DType::kF32, shape, false, {}};
    for (int64_t i = 0; i < kChunks; ++i) {
      tensor.chunks.push_back({offsets[i], size, {0, 1000 * t + i, 16}});
    }
    tensors.push_back(std::move(tensor));
  }
  const std::vector<std::string> files = {"__0_0.distcp"};
  return dcp::WriteMetadata(tensors, {}, {}, files, {}, "id", "id");
}

// Puts number(i) in the place of each number i that comes with an offset.
std::string WithNumbers(std::string bytes, const std::function<int64_t(int64_t)>& number) {
  const std::string word("X\5\0\0\0index", 10);
  const size_t first = bytes.find(word);
  REQUIRE(first != std::string::npos);
  const std::string get = {'h', bytes[first + word.size() + 1], 'K'};  // BINGET of the word, BININT1
  REQUIRE(bytes[first + word.size()] == 'q');
  std::vector<size_t> places = {first + word.size() + 3};
  for (size_t at = bytes.find(get, first); at != std::string::npos; at = bytes.find(get, at + 1)) {
    places.push_back(at + get.size());
  }
  REQUIRE(places.size() == 2 * kChunks);
  for (const size_t at : places) bytes[at] = static_cast<char>(number(static_cast<uint8_t>(bytes[at])));
  return bytes;
}

void CheckPlaces(const std::string& metadata) {
  const TempDirectory directory;
  std::ofstream(directory / ".metadata", std::ios::binary) << metadata;
  std::ofstream(directory / "__0_0.distcp").flush();
  std::filesystem::resize_file(directory / "__0_0.distcp", 5000);
  const absl::StatusOr<Catalog> catalog = ReadCatalog(directory.path());
  REQUIRE(catalog.status().ToString() == "OK");
  REQUIRE(catalog->tensors().size() == 2);
  for (int64_t t = 0; t < 2; ++t) {
    const Catalog::Tensor& tensor = catalog->tensors()[t];
    REQUIRE(tensor.num_chunks == kChunks);
    for (int64_t i = 0; i < kChunks; ++i) {
      const Catalog::Chunk chunk = catalog->chunk(tensor, i);
      CHECK(chunk.offset[0] == i);
      CHECK(chunk.place.at == 1000 * t + i);
    }
  }
}

TEST_CASE("places: the numbers of the chunks are right") { CheckPlaces(Metadata()); }

TEST_CASE("places: the numbers are those of other chunks") {
  CheckPlaces(WithNumbers(Metadata(), [](int64_t i) { return kChunks - 1 - i; }));
}

TEST_CASE("places: there are no such chunks, or only some numbers are right") {
  CheckPlaces(WithNumbers(Metadata(), [](int64_t) { return int64_t{200}; }));
  CheckPlaces(WithNumbers(Metadata(), [](int64_t i) { return i % 3 == 0 ? 7 : i; }));
}

}  // namespace
}  // namespace reshard::testing
