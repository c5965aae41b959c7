// Batched reads: every piece is in one, pieces of a batch are a box, and what they have in common is read once.
#include "checkpoint/convert/batched_reads.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/convert/conversion.h"
#include "reshard/checkpoint/convert.h"
#include "tests/catch.h"
#include "tests/checkpoint/formats/safetensors_file.h"
#include "tests/checkpoint/io/counting_system.h"
#include "tests/file_bytes.h"

namespace reshard::testing {
namespace {

constexpr int64_t kRows = 640, kColumns = 960;
// So much is read of the end of an archive, to look into it.
constexpr int64_t kEndOfArchive = 8192;

// A file with one matrix of bytes.
std::string WriteMatrix(const TemporaryDirectory& directory) {
  const std::string header = absl::StrCat(R"({"a":{"dtype":"U8","shape":[)", kRows, ",", kColumns,
                                          R"(],"data_offsets":[0,)", kRows * kColumns, "]}}");
  return directory.Write("a.safetensors", SafetensorsBytes(header, kRows * kColumns));
}

TEST_CASE("every piece is in one batch, and a batch is a box") {
  std::mt19937_64 random(Seed());
  const TemporaryDirectory directory;
  const std::string file = WriteMatrix(directory);
  for (const char* layout : {"[*, <x>]", "[<x>, *]", "[<x>, <y>]", "[<y,x>, *]", "[*, <x,y>]", "[...]"}) {
    const auto rules = *LayoutRules::ForAll("{x:5,y:3}", layout);
    const ConvertOptions options;
    const auto made = convert::Conversion::Make(file, "nowhere", rules, options);
    REQUIRE(made.status().ToString() == "OK");
    const output::OutputPlan& plan = *(*made)->plan;
    for (int i = 0; i < 50; ++i) {
      // As after an interruption: some pieces are there already.
      std::vector<int64_t> pieces;
      for (int64_t p = 0; p < static_cast<int64_t>(plan.pieces().size()); ++p) {
        if (i == 0 || random() % 4 != 0) pieces.push_back(p);
      }
      const convert::BatchLimits limits = {1 + static_cast<int64_t>(random() % 6),
                                           static_cast<int64_t>(random() % (2 * kRows * kColumns))};
      const convert::BatchedReads reads = convert::BatchReads(plan, pieces, limits);
      std::vector<int64_t> sorted = reads.pieces;
      std::sort(sorted.begin(), sorted.end());
      CHECK(sorted == pieces);
      size_t next = 0;
      for (const convert::BatchedRead& batch : reads.batches) {
        CHECK(batch.first == next);
        next += batch.count;
        const source::Box box = convert::BoxOf(plan, reads, batch);
        int64_t elements = 0;
        for (const int64_t number : reads.PiecesOf(batch)) {
          const source::Box part = convert::BoxOf(plan, plan.pieces()[number]);
          CHECK(Common(part, box) == part);
          elements += part.Elements();
        }
        CHECK(elements == box.Elements());
        INFO(layout << ", " << batch.count << " pieces of " << limits.pieces << " and " << limits.bytes << " bytes");
        CHECK((batch.count == 1 || elements <= limits.bytes));
        CHECK((batch.dim == 0 || static_cast<int64_t>(batch.count) <= limits.pieces));
      }
      CHECK(next == reads.pieces.size());
    }
  }
}

TEST_CASE("columns so long that they are cut have reads of what is side by side") {
  const TemporaryDirectory directory;
  constexpr int64_t kLong = 4096, kWide = 65536;
  const std::string header = absl::StrCat(R"({"a":{"dtype":"U8","shape":[)", kLong, ",", kWide,
                                          R"(],"data_offsets":[0,)", kLong * kWide, "]}}");
  const std::string file = directory.Write("a.safetensors", SafetensorsBytes(header, 0));
  std::filesystem::resize_file(file, std::filesystem::file_size(file) + kLong * kWide);
  const auto rules = *LayoutRules::ForAll("{x:2}", "[*, <x>]");
  const ConvertOptions options;
  const auto made = convert::Conversion::Make(file, "nowhere", rules, options);
  REQUIRE(made.status().ToString() == "OK");
  const output::OutputPlan& plan = *(*made)->plan;
  REQUIRE(plan.pieces().size() == 4);
  const convert::BatchedReads reads = convert::BatchReads(plan, std::vector<int64_t>{0, 1, 2, 3}, {8, kLong * kWide});
  REQUIRE(reads.batches.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    const source::Box upper_or_lower{{static_cast<int64_t>(i) * kLong / 2, 0}, {kLong / 2, kWide}};
    CHECK(convert::BoxOf(plan, reads, reads.batches[i]) == upper_or_lower);
  }
}

TEST_CASE("columns are read by rows, and a chunk that goes into several pieces is read once") {
  const TemporaryDirectory directory;
  const std::string file = WriteMatrix(directory), grid = directory.path("grid");
  REQUIRE(Convert(file, grid, *LayoutRules::ForAll("{x:2,y:2}", "[<x>, <y>]"), {}).status().ToString() == "OK");
  for (const char* layout : {"[*, <x>]", "[<x>, *]"}) {
    const std::string target = directory.path(absl::StrCat("target", layout[1] == '*' ? 1 : 2));
    ConvertOptions options;
    options.threads = 1;
    CountingSystem system;
    const io::ScopedSystem scoped(&system);
    const auto done = Convert(grid, target, *LayoutRules::ForAll("{x:8}", layout), options);
    REQUIRE(done.status().ToString() == "OK");
    // What is read of the files that tensors are in: their bytes once, and the frames of four archives.
    INFO(layout << ": " << done->read_bytes << " bytes");
    CHECK(done->read_bytes <= kRows * kColumns + 4 * kEndOfArchive);
    CHECK(system.TakeCalls() < 100);
  }
}

TEST_CASE("what is converted in reads is what was there") {
  std::mt19937_64 random(Seed());
  const TemporaryDirectory directory;
  const std::string file = WriteMatrix(directory);
  const std::vector<std::string> layouts = {"[*, <x>]",   "[<x>, *]",   "[<x>, <y>]",
                                            "[<y>, <x>]", "[*, <y,x>]", "[<x,y>, *]"};
  std::string from = file;
  for (int i = 0; i < 12; ++i) {
    const std::string mesh = absl::StrCat("{x:", 1 + random() % 7, ",y:", 1 + random() % 5, "}");
    const std::string& layout = layouts[random() % layouts.size()];
    const std::string to = directory.path(absl::StrCat("step", i));
    ConvertOptions options;
    options.threads = 1 + i % 3;
    if (i % 4 == 3) options.memory_limit = int64_t{5} << 20;  // short stripes
    INFO("step " << i << ": " << mesh << " " << layout);
    const auto done = Convert(from, to, *LayoutRules::ForAll(mesh, layout), options);
    REQUIRE(done.status().ToString() == "OK");
    from = to;
  }
  ConvertOptions back;
  back.format = CheckpointFormat::kSafetensors;
  REQUIRE(Convert(from, directory.path("back"), std::nullopt, back).status().ToString() == "OK");
  const std::string bytes = FileBytes(directory.path("back/model.safetensors"));
  CHECK(bytes.substr(bytes.size() - static_cast<size_t>(kRows * kColumns)) ==
        FileBytes(file).substr(FileBytes(file).size() - static_cast<size_t>(kRows * kColumns)));
}

}  // namespace
}  // namespace reshard::testing
