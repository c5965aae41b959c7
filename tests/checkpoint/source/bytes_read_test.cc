// Source::bytes_read is what the system was asked for, and reading a part of a chunk reads little more than the part.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/source/source.h"
#include "tests/catch.h"
#include "tests/checkpoint/formats/safetensors_file.h"
#include "tests/checkpoint/io/counting_system.h"

namespace reshard::testing {
namespace {

constexpr int64_t kRows = 20;

// Reads `width` columns of all rows of a tensor of `columns` bytes a row; what was read, and in how many calls.
struct Cost {
  int64_t bytes = 0;
  int64_t calls = 0;
};
Cost ReadColumns(int64_t columns, int64_t width) {
  const TemporaryDirectory directory;
  const int64_t bytes = kRows * columns;
  const std::string header =
      absl::StrCat(R"({"a":{"dtype":"U8","shape":[)", kRows, ",", columns, R"(],"data_offsets":[0,)", bytes, "]}}");
  const std::string path = directory.Write("model.safetensors", SafetensorsBytes(header, bytes));
  auto source = source::Source::Open(path, {});
  REQUIRE(source.status().ToString() == "OK");
  CountingSystem system;
  const io::ScopedSystem scoped(&system);
  std::string out(static_cast<size_t>(kRows * width), '\0');
  REQUIRE((*source)->Read(0, {0, 1}, {kRows, width}, absl::MakeSpan(out)).ToString() == "OK");
  for (int64_t i = 0; i < kRows * width; ++i) {
    const int64_t element = i / width * columns + 1 + i % width;
    REQUIRE(out[i] == static_cast<char>(element * 37 + 11));
  }
  const Cost cost = {system.TakeBytes(), system.TakeCalls()};
  CHECK((*source)->bytes_read() == cost.bytes);
  return cost;
}

TEST_CASE("Reading columns: runs that are far apart are read one by one, near ones together") {
  const Cost far = ReadColumns(2048 + 101, 100);
  CHECK(far.bytes == kRows * 100);
  CHECK(far.calls == kRows);
  const Cost near = ReadColumns(2048 + 100, 100);
  CHECK(near.bytes == (kRows - 1) * (2048 + 100) + 100);
  CHECK(near.calls == 1);
  const Cost long_runs = ReadColumns(2048 + 100, 2048);  // these go to their place without a copy
  CHECK(long_runs.bytes == kRows * 2048);
  CHECK(long_runs.calls == kRows);
}

TEST_CASE("Bytes read from a checkpoint with checksums count the chunks that were checked, and the frames") {
  auto source = source::Source::Open(RESHARD_SOURCE_DIR "/tests/checkpoint/fixtures/grid2x2", {});
  REQUIRE(source.status().ToString() == "OK");
  CountingSystem system;
  const io::ScopedSystem scoped(&system);
  for (size_t t = 0; t < (*source)->catalog().tensors().size(); ++t) {
    const Catalog::Tensor& tensor = (*source)->catalog().tensors()[t];
    const std::vector<int64_t> offset(tensor.shape.size(), 0);
    std::string out(static_cast<size_t>(tensor.bytes), '\0');
    REQUIRE((*source)->Read(static_cast<int64_t>(t), offset, tensor.shape, absl::MakeSpan(out)).ToString() == "OK");
  }
  CHECK((*source)->bytes_read() == system.TakeBytes());
  CHECK(system.TakeCalls() > 0);
}

}  // namespace
}  // namespace reshard::testing
