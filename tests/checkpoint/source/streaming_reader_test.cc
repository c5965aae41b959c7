// A pass over a box reads what is there, every byte of it once, and finds damage before the last of it is used.
#include "checkpoint/source/streaming_reader.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/boxes.h"
#include "reshard/checkpoint/convert.h"
#include "tests/catch.h"
#include "tests/checkpoint/formats/safetensors_file.h"
#include "tests/checkpoint/io/counting_system.h"
#include "tests/file_bytes.h"

namespace reshard::testing {
namespace {

constexpr int64_t kRows = 240, kColumns = 200, kElement = 2;
// So much is read of the end of an archive, to look into it.
constexpr int64_t kEndOfArchive = 8192;

// The byte of the tensor, by SafetensorsBytes.
char ByteAt(int64_t row, int64_t column, int64_t byte) {
  return static_cast<char>(((row * kColumns + column) * kElement + byte) * 37 + 11);
}

// A tensor of kRows x kColumns in chunks, with the checksums of archives and of a sidecar.
class Stored {
 public:
  explicit Stored(const std::string& layout) {
    const std::string header = absl::StrCat(R"({"a":{"dtype":"BF16","shape":[)", kRows, ",", kColumns,
                                            R"(],"data_offsets":[0,)", kRows * kColumns * kElement, "]}}");
    const std::string file = directory_.Write("a.safetensors", SafetensorsBytes(header, kRows * kColumns * kElement));
    ConvertTo(file, path(), layout);
  }

  std::string path() const { return directory_.path("dcp"); }
  // The result beside it; what Convert returned.
  absl::Status Columns(int threads) const {
    ConvertOptions options;
    options.threads = threads;
    options.overwrite = true;
    return Convert(path(), directory_.path("columns"), *LayoutRules::ForAll("{x:5}", "[*, <x>]"), options).status();
  }
  std::string columns() const { return directory_.path("columns"); }
  std::vector<std::string> Archives() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path())) {
      if (entry.path().extension() == ".distcp") names.push_back(entry.path().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  static void ConvertTo(const std::string& from, const std::string& to, const std::string& layout) {
    const auto done = Convert(from, to, *LayoutRules::ForAll("{a:2,b:2}", layout), {});
    REQUIRE(done.status().ToString() == "OK");
  }

  TemporaryDirectory directory_;
};

source::Box RandomBox(std::mt19937_64& random) {
  source::Box box;
  for (const int64_t size : {kRows, kColumns}) {
    const auto length = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(size));
    box.offset.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(size - length + 1)));
    box.size.push_back(length);
  }
  return box;
}

// Reads the box in parts of at most `most` bytes. `differs`: whether something came that was not written there.
absl::Status ReadAll(source::Source* source, const source::Box& box, int64_t most, bool* differs) {
  *differs = false;
  source::StreamingReader reader(source, 0, box);
  for (const source::Box& part : catalog::CutBox(box, kElement, most)) {
    int64_t elements = 0;
    absl::Status read = reader.Read(part, [&](const source::Box& is, std::string& bytes) -> absl::Status {
      REQUIRE(static_cast<int64_t>(bytes.size()) == is.Elements() * kElement);
      CHECK(Common(is, part) == is);
      for (int64_t i = 0; i < static_cast<int64_t>(bytes.size()); ++i) {
        const int64_t element = i / kElement;
        const char should =
            ByteAt(is.offset[0] + element / is.size[1], is.offset[1] + element % is.size[1], i % kElement);
        *differs |= bytes[i] != should;
      }
      elements += is.Elements();
      bytes.clear();  // they may be taken away
      return absl::OkStatus();
    });
    if (!read.ok()) return read;
    CHECK(elements == part.size[0] * part.size[1]);
  }
  return absl::OkStatus();
}

// The same of what is undamaged.
void ReadGood(source::Source* source, const source::Box& box, int64_t most) {
  bool differs = false;
  CHECK(ReadAll(source, box, most, &differs).ToString() == "OK");
  CHECK(!differs);
}

TEST_CASE("a pass reads any box in any parts") {
  std::mt19937_64 random(Seed());
  for (const char* layout : {"[<a>, <b>]", "[*, <a,b>]", "[<a,b>, *]", "[...]"}) {
    const Stored stored(layout);
    for (int i = 0; i < 40; ++i) {
      const auto source = source::Source::Open(stored.path(), {});
      REQUIRE(source.status().ToString() == "OK");
      const source::Box box = RandomBox(random);
      const auto most = static_cast<int64_t>(kElement + random() % 20'000);
      INFO(layout << ", rows " << box.offset[0] << " + " << box.size[0] << ", columns " << box.offset[1] << " + "
                  << box.size[1] << ", " << most << " bytes at a time");
      ReadGood(source->get(), box, most);
    }
  }
}

TEST_CASE("a pass over whole chunks reads every byte once") {
  for (const char* layout : {"[<a>, <b>]", "[*, <a,b>]", "[<a,b>, *]"}) {
    const Stored stored(layout);
    const auto source = source::Source::Open(stored.path(), {});
    REQUIRE(source.status().ToString() == "OK");
    const source::Box box{{0, 0}, {kRows, kColumns}};
    ReadGood(source->get(), box, 5000);  // looks into the archives
    CountingSystem system;
    const io::ScopedSystem scoped(&system);
    ReadGood(source->get(), box, 5000);
    const int64_t without_checks = system.TakeBytes();
    CHECK(without_checks == kRows * kColumns * kElement);
    const auto again = source::Source::Open(stored.path(), {});
    const int64_t opened = system.TakeBytes();
    ReadGood(again->get(), box, 5000);
    // The frames of four archives; the bytes of their elements count once.
    INFO(layout << ", " << opened << " bytes to open it");
    CHECK(system.TakeBytes() <= without_checks + 4 * kEndOfArchive);
    ReadGood(again->get(), box, 5000);
    CHECK(system.TakeBytes() == without_checks);
  }
}

TEST_CASE("a pass, and a conversion, find every byte that is not as it was written") {
  std::mt19937_64 random(Seed());
  const Stored stored("[<a>, <b>]");
  int64_t found = 0;
  for (const std::string& name : stored.Archives()) {
    const std::string good = FileBytes(name);
    for (int i = 0; i < 60; ++i) {
      std::string bad = good;
      const size_t byte = random() % bad.size();
      bad[byte] = static_cast<char>(bad[byte] ^ (1 << random() % 8));
      std::ofstream(name, std::ios::binary) << bad;
      INFO(name << ", byte " << byte << " of " << good.size());
      bool differs = false;
      const auto source = source::Source::Open(stored.path(), {});
      REQUIRE(source.status().ToString() == "OK");
      const absl::Status read = ReadAll(source->get(), {{0, 0}, {kRows, kColumns}}, 5000, &differs);
      CHECK((!differs || absl::IsDataLoss(read)));
      found += differs ? 1 : 0;
      std::filesystem::remove_all(stored.columns());
      const absl::Status converted = stored.Columns(1 + i % 2);
      CHECK(converted.ok() == read.ok());
      CHECK(std::filesystem::exists(stored.columns()) == converted.ok());
    }
    std::ofstream(name, std::ios::binary) << good;
  }
  CHECK(found > 100);  // of 240: half of an archive are elements
}

}  // namespace
}  // namespace reshard::testing
