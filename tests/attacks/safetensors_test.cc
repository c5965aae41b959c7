// Safetensors files that are wrong on purpose: refused with a reason, exit code 4, quickly and in little memory; and
// files damaged at every place: an error or a catalog, never anything else.
#include <algorithm>
#include <filesystem>
#include <random>

#include "absl/status/status.h"
#include "reshard/checkpoint/catalog.h"
#include "tests/attacks/command.h"
#include "tests/attacks/refuses.h"
#include "tests/catch.h"
#include "tests/checkpoint/formats/safetensors_file.h"

namespace reshard::testing {
namespace {

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string Repeated(std::string_view text, int64_t times) {
  std::string out;
  for (int64_t i = 0; i < times; ++i) out += text;
  return out;
}

void Refuses(const std::string& path, const std::string& part) { CommandRefuses({"inspect", path}, part); }

void RefusesFile(const std::string& bytes, const std::string& part) {
  const TemporaryDirectory dir;
  INFO("header: " << bytes.substr(std::min<size_t>(8, bytes.size()), 300));
  Refuses(dir.Write("a.safetensors", bytes), part);
}

void RefusesHeader(const std::string& header, int64_t data_bytes, const std::string& part) {
  RefusesFile(SafetensorsBytes(header, data_bytes), part);
}

TEST_CASE("safetensors: lengths of the header") {
  RefusesFile("", "too few");
  RefusesFile("1234567", "too few");
  RefusesFile(std::string(8, '\0'), "begins neither like");
  RefusesFile(SafetensorsBytes(3, "{}", 0), "only 2 follow");
  RefusesFile(SafetensorsBytes(UINT64_MAX, "{}", 0), "18446744073709551615");
  RefusesFile(SafetensorsBytes(uint64_t{1} << 63, "{}", 0), "9223372036854775808");
  RefusesFile(SafetensorsBytes(INT64_MAX, "{}", 100), "9223372036854775807");
  RefusesFile(SafetensorsBytes(uint64_t{8} << 30, "{" + std::string(113, ' '), 0), "8589934592");
  RefusesFile(SafetensorsBytes(1, "{}", 0), "not JSON at byte");
  // A length beyond the limit, in a file that is as long.
  const TemporaryDirectory dir;
  const std::string path = dir.Write("a.safetensors", SafetensorsBytes(uint64_t{3} << 30, "{", 0));
  std::filesystem::resize_file(path, uint64_t{4} << 30);
  Refuses(path, "1073741824");
  // And within the limit, of a file that is something else: not read into memory.
  dir.Write("a.safetensors", SafetensorsBytes(uint64_t{1} << 30, "PK", 0));
  std::filesystem::resize_file(path, uint64_t{2} << 30);
  Refuses(path, "begins neither like");
}

TEST_CASE("safetensors: shapes") {
  const auto shape = [](const std::string& text, int64_t bytes, const std::string& part,
                        const std::string& dtype = "F32") {
    RefusesHeader("{" + Entry("w", dtype, text, "[0," + std::to_string(bytes) + "]") + "}", bytes, part);
  };
  shape("[4194305,4194305,211106198978564]", 4, "too large", "U8");  // the product wraps to 4
  shape("[4611686018427387904,4]", 0, "too large");
  shape("[9223372036854775807]", 4, "too large");
  shape("[0,9223372036854775807,9223372036854775807]", 0, "too large");
  shape("[4294967296,4294967296]", 0, "too large");
  shape("[9223372036854775808]", 4, "not a whole number");
  shape("[18446744073709551617]", 4, "not a whole number");
  shape("[1e400]", 4, "not JSON at byte");
  shape("[-1]", 4, "not a whole number");
  shape("[-0]", 0, "not a whole number");
  shape("[1.0]", 4, "not a whole number");
  shape("[1e0]", 4, "not a whole number");
  shape("[\"1\"]", 4, "not a whole number");
  shape("[[1]]", 4, "not a whole number");
  shape("[null]", 4, "not a whole number");
  shape("[NaN]", 4, "not JSON at byte");
  shape("1", 4, "shape is not a list");
  shape("{}", 4, "shape is not a list");
  shape("[2]", 4, "takes 8 bytes");
  shape("[]", 8, "takes 4 bytes");
  shape("[3]", 1, "not a whole number of bytes", "F4");
  shape("[" + Repeated("1,", 64) + "1]", 4, "65 dimensions");
}

TEST_CASE("safetensors: offsets") {
  const auto offsets = [](const std::string& text, int64_t bytes, const std::string& part) {
    RefusesHeader("{" + Entry("w", "U8", "[4]", text) + "}", bytes, part);
  };
  offsets("[-4,0]", 4, "not a whole number");
  offsets("[0.0,4.0]", 4, "not a whole number");
  offsets("[0,4e0]", 4, "not a whole number");
  offsets("[4,0]", 4, "not a range");
  offsets("[0,5]", 4, "not a range");
  offsets("[4,8]", 4, "not a range");
  offsets("[0,9223372036854775807]", 4, "not a range");
  offsets("[18446744073709551612,18446744073709551615]", 4, "not a whole number");
  offsets("[0,4,4]", 4, "more than two");
  offsets("[0]", 4, "data_offsets must be two numbers");
  offsets("[]", 4, "data_offsets must be two numbers");
  offsets("{}", 4, "not a list");
  offsets("null", 4, "not a list");
  offsets("[1,5]", 5, "bytes 0 to 1 belong to no tensor");
  offsets("[0,4]", 5, "the tensors end at byte 4");
  const auto two = [](const std::string& a, const std::string& b, int64_t bytes, const std::string& part) {
    RefusesHeader("{" + Entry("a", "U8", "[4]", a) + "," + Entry("b", "U8", "[4]", b) + "}", bytes, part);
  };
  two("[0,4]", "[0,4]", 4, "inside the tensor before");
  two("[3,7]", "[0,4]", 7, "inside the tensor before");
  two("[0,4]", "[5,9]", 9, "bytes 4 to 5 belong to no tensor");
  // Without elements, in the middle of another.
  RefusesHeader("{" + Entry("a", "U8", "[4]", "[0,4]") + "," + Entry("b", "U8", "[0]", "[2,2]") + "}", 4, "inside");
  RefusesHeader("{" + Entry("b", "U8", "[0]", "[0,0]") + "}", 4, "the tensors end at byte 0");
  RefusesHeader("{}", 1, "the tensors end at byte 0");
}

TEST_CASE("safetensors: JSON that is something else") {
  const std::string good = Entry("w", "U8", "[1]", "[0,1]");
  RefusesHeader("[]", 0, "begins neither like");
  RefusesHeader(" {}", 0, "begins neither like");
  RefusesHeader("\xef\xbb\xbf{}", 0, "begins neither like");
  RefusesHeader("{" + good, 1, "not JSON at byte");
  RefusesHeader("{" + good + ",}", 1, "not JSON at byte");
  RefusesHeader("{" + good + "}{}", 1, "not JSON at byte");
  RefusesHeader("{" + good + "} x", 1, "not JSON at byte");
  RefusesHeader("{" + good + "}" + std::string(4, '\0'), 1, "not JSON at byte");
  RefusesHeader("{" + good + "/**/}", 1, "not JSON at byte");
  RefusesHeader("{" + good + "," + good + "}", 1, "\"w\" appears twice");
  RefusesHeader(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"shape":[1]}})", 1, "\"shape\" appears twice");
  RefusesHeader(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"\u0073hape":[1]}})", 1,
                "\"shape\" appears twice");
  RefusesHeader(R"({"w":{"shape":[1],"data_offsets":[0,1]}})", 1, "no dtype");
  RefusesHeader(R"({"w":{"dtype":"U8","data_offsets":[0,1]}})", 1, "no shape");
  RefusesHeader(R"({"w":{"dtype":"U8","shape":[1]}})", 1, "data_offsets must be two numbers");
  RefusesHeader(R"({"w":{"dtype":1,"shape":[1],"data_offsets":[0,1]}})", 1, "dtype is not text");
  RefusesHeader(R"({"w":["U8",[1],[0,1]]})", 1, "not a JSON object");
  RefusesHeader(R"({"w":null})", 0, "not a JSON object");
  RefusesHeader(R"({"__metadata__":[]})", 0, "__metadata__");
  RefusesHeader(R"({"__metadata__":{"a":1}})", 0, "not text");
  RefusesHeader(R"({"__metadata__":{"a":{"b":"c"}}})", 0, "not text");
  RefusesHeader(R"({"__metadata__":{"a":"1","a":"2"}})", 0, "\"a\" appears twice");
  RefusesHeader("{\"\xff\":1}", 0, "not JSON at byte");
  RefusesHeader("{\"\xc0\xaf\":1}", 0, "not JSON at byte");
  RefusesHeader("{\"\xed\xa0\x80\":1}", 0, "not JSON at byte");
  RefusesHeader(R"({"\ud800":1})", 0, "not JSON at byte");
  RefusesHeader(std::string("{\"a\0b\":1}", 9), 0, "not JSON at byte");
  RefusesHeader("{\"a\nb\":1}", 0, "not JSON at byte");
  // A name that would command a terminal.
  RefusesHeader(R"({"\u001b[2J\u009b2J":1})", 0, "not a JSON object");
}

TEST_CASE("safetensors: large and deep headers") {
  RefusesHeader("{\"w\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}", 0, "not a JSON object");
  RefusesHeader(R"({"w":{"x":)" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}}", 0,
                "nested more than 64");
  RefusesHeader(Repeated("{\"a\":", 1'000'000), 0, "nested more than 64");
  RefusesHeader(R"({"w":{"x":)" + Repeated("{\"a\":", 1'000'000), 0, "nested more than 64");
  RefusesHeader("{\"" + std::string(3'000'000, 'x') + "\":1}", 0, "not a JSON object");
  RefusesHeader(R"({"w":{"dtype":"U8","data_offsets":[0,1],"shape":[)" + Repeated("1,", 1'000'000) + "1]}}", 1,
                "dimensions");

  const TemporaryDirectory dir;
  std::string header = "{";
  constexpr int kEntries = 100'000;
  for (int i = 0; i < kEntries; ++i) {
    header += (i == 0 ? "" : ",") + Entry("model.layers." + std::to_string(i) + ".weight", "U8", "[0,7]", "[0,0]");
  }
  const std::string path = dir.Write("a.safetensors", SafetensorsBytes(header + "}", 0));
  const Outcome many = RunReshard({"inspect", path, "--json"});
  CHECK(many.code == 0);
  CHECK(many.cpu_seconds < 2 * kQuickSeconds);
  CHECK(many.peak_bytes < kLittleMemory);
  RefusesHeader(header + "," + Entry("model.layers.0.weight", "U8", "[0,7]", "[0,0]") + "}", 0, "appears twice");
}

TEST_CASE("safetensors: an index that leads elsewhere") {
  const TemporaryDirectory dir;
  const auto index = [&](const std::string& json, const std::string& part) {
    dir.Write("m/model.safetensors.index.json", json);
    INFO(json.substr(0, 300));
    Refuses(dir.path("m"), part);
  };
  dir.Write("secret.safetensors", SafetensorsBytes("{" + Entry("w", "U8", "[1]", "[0,1]") + "}", 1));
  dir.Write("m/1.safetensors", SafetensorsBytes("{" + Entry("w", "U8", "[1]", "[0,1]") + "}", 1));
  index(R"({"weight_map":{"w":"../secret.safetensors"}})", "leaves its directory");
  index(R"({"weight_map":{"w":")" + dir.path("secret.safetensors") + "\"}}", "absolute");
  index(R"({"weight_map":{"w":"1.safetensors","v":"1.safetensors"}})", "\"v\"");
  index(R"({"weight_map":{"w":"gone\u001b[2J\u009b\n.safetensors"}})", "missing");
  index(R"({"weight_map":{"w":"1.safetensors)" + std::string(1'000'000, 'x') + "\"}}", "1000013 bytes");
  index(R"({"weight_map":)" + std::string(1'000'000, '['), "not a JSON object");
  std::filesystem::create_directory_symlink("/", dir.path("m/loop"));
  index(R"({"weight_map":{"w":"loop"}})", "regular");
}

// Reads the file and everything that the catalog says of it.
void ReadsOrRefuses(const TemporaryDirectory& dir, const std::string& bytes) {
  auto catalog = ReadCatalog(dir.Write("a.safetensors", bytes));
  if (!catalog.ok()) {
    const bool expected = absl::IsDataLoss(catalog.status()) || absl::IsInvalidArgument(catalog.status()) ||
                          absl::IsResourceExhausted(catalog.status());
    if (!expected) FAIL(catalog.status());
    return;
  }
  for (const Catalog::Tensor& tensor : catalog->tensors()) {
    for (int64_t i = 0; i < tensor.num_chunks; ++i) {
      const Catalog::Chunk chunk = catalog->chunk(tensor, i);
      if (chunk.place.at + chunk.place.length > static_cast<int64_t>(bytes.size())) FAIL("a place beyond the file");
    }
  }
}

TEST_CASE("safetensors: damaged at every place") {
  const std::string header =
      R"({"__metadata__":{"DCP_SHARDING_INFO":"{\"b\": {\"saved_offsets\": [2, 0]}}","format":"pt"},)" +
      Entry("a", "F32", "[2]", "[0,8]") + "," + Entry("b", "BF16", "[1,2]", "[8,12]") + "}  ";
  const std::string good = SafetensorsBytes(header, 12);
  const TemporaryDirectory dir;
  REQUIRE(ReadCatalog(dir.Write("a.safetensors", good)).ok());
  for (size_t length = 0; length < good.size(); ++length) {
    const absl::Status status = ReadCatalog(dir.Write("a.safetensors", good.substr(0, length))).status();
    if (!absl::IsDataLoss(status)) FAIL("cut to " << length << " bytes: " << status);
  }
  for (size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ 1 << bit);
      ReadsOrRefuses(dir, bytes);
    }
  }
  std::mt19937_64 random(Seed());
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = good;
    for (auto n = random() % 4 + 1; n > 0; --n) {
      const size_t at = random() % (8 + header.size());
      const std::string_view some = "{}[]\",:0129-.e\\x\xff";
      switch (random() % 3) {
        case 0:
          bytes[at] = some[random() % some.size()];
          break;
        case 1:
          bytes.erase(at, random() % 5);
          break;
        default:
          bytes.insert(at, good, random() % good.size(), random() % 20);
      }
    }
    // Mostly with the length that is right again, so that the JSON is what is looked at.
    if (random() % 4 != 0)
      bytes = SafetensorsBytes(bytes.size() < 20 ? 0 : bytes.size() - 20,
                               bytes.substr(std::min<size_t>(8, bytes.size())), 0);
    ReadsOrRefuses(dir, bytes);
  }
}

}  // namespace
}  // namespace reshard::testing
