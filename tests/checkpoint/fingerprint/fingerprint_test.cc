// The fingerprint of a checkpoint is that of the same tensors in memory, however they are stored; and another one for
// every change of them.
#include "reshard/checkpoint/fingerprint.h"

#include <map>
#include <numeric>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reshard/checkpoint/convert.h"
#include "reshard/layout/text.h"
#include "tests/catch.h"
#include "tests/checkpoint/formats/safetensors_file.h"

namespace reshard {
namespace {

using testing::SafetensorsBytes;
using testing::TemporaryDirectory;

const std::string kFixtures = RESHARD_SOURCE_DIR "/tests/checkpoint/fixtures";

// As tests of formats write it: row-major, one after the other in a safetensors file.
struct Whole {
  std::string name;
  DType dtype;
  std::string stored_dtype;
  std::vector<int64_t> shape;
  int64_t bytes() const {
    return std::accumulate(shape.begin(), shape.end(), SizeOf(dtype), [](int64_t a, int64_t b) { return a * b; });
  }
};

// Smaller than a stripe and larger; one whose rows are longer than a stripe; a scalar and nothing at all.
const std::vector<Whole> kWholes = {{"b.weight", DType::kF32, "F32", {700, 1031}},
                                    {"a.wide", DType::kBF16, "BF16", {3, 2, 700001}},
                                    {"b.mask", DType::kBool, "BOOL", {37}},
                                    {"step", DType::kI64, "I64", {}},
                                    {"empty", DType::kF16, "F16", {0, 5}}};

// The file's bytes.
std::string FileOf(const std::vector<Whole>& wholes) {
  std::vector<std::string> entries;
  int64_t at = 0;
  for (const Whole& whole : wholes) {
    entries.push_back(absl::StrCat("\"", whole.name, R"(":{"dtype":")", whole.stored_dtype, R"(","shape":[)",
                                   absl::StrJoin(whole.shape, ","), R"(],"data_offsets":[)", at, ",",
                                   at + whole.bytes(), "]}"));
    at += whole.bytes();
  }
  return SafetensorsBytes(absl::StrCat("{", absl::StrJoin(entries, ","), "}"), at);
}

// By the sum of what the devices of a layout contribute; `data` is what follows the header.
std::map<std::string, ContentFingerprint> InMemory(const std::vector<Whole>& wholes, std::string_view data) {
  std::map<std::string, ContentFingerprint> found;
  for (const Whole& whole : wholes) {
    ConstTensorView view;
    view.data = data.data();
    view.dtype = whole.dtype;
    view.shape.assign(whole.shape.begin(), whole.shape.end());
    int64_t stride = 1;
    view.strides.resize(whole.shape.size());
    for (size_t d = whole.shape.size(); d-- > 0; stride *= whole.shape[d]) view.strides[d] = stride;
    const Layout layout =
        ParseLayout(absl::StrCat("[", absl::StrJoin(whole.shape, ", "), "]"), *ParseMesh("{x:1}")).value();
    found[whole.name] = FingerprintOf(whole.name, view, layout, 0).value();
    data.remove_prefix(static_cast<size_t>(whole.bytes()));
  }
  return found;
}

std::string DataOf(const std::string& file, const std::vector<Whole>& wholes) {
  int64_t bytes = 0;
  for (const Whole& whole : wholes) bytes += whole.bytes();
  return file.substr(file.size() - static_cast<size_t>(bytes));
}

CheckpointFingerprint Taken(const std::string& path, const FingerprintOptions& options = {}) {
  auto taken = FingerprintCheckpoint(path, options);
  INFO(path << ": " << taken.status());
  REQUIRE(taken.ok());
  return *std::move(taken);
}

std::map<std::string, ContentFingerprint> ByName(const CheckpointFingerprint& taken) {
  std::map<std::string, ContentFingerprint> found;
  for (const CheckpointFingerprint::Tensor& tensor : taken.tensors) found[tensor.name] = tensor.fingerprint;
  return found;
}

TEST_CASE("the fingerprint of a checkpoint is that of the tensors in memory, in every format and layout") {
  const TemporaryDirectory directory;
  const std::string file = FileOf(kWholes);
  const std::string path = directory.Write("model.safetensors", file);
  const std::map<std::string, ContentFingerprint> expected = InMemory(kWholes, DataOf(file, kWholes));
  ContentFingerprint sum;
  for (const auto& [name, fingerprint] : expected) sum += fingerprint;

  const CheckpointFingerprint whole = Taken(path);
  CHECK(ByName(whole) == expected);
  CHECK(whole.fingerprint == sum);
  CHECK(whole.bytes == static_cast<int64_t>(DataOf(file, kWholes).size()));
  REQUIRE(whole.tensors.size() == kWholes.size());
  CHECK(whole.tensors[0].name == "a.wide");  // sorted
  CHECK(whole.tensors[0].dtype == DType::kBF16);
  CHECK(whole.tensors[0].shape == std::vector<int64_t>{3, 2, 700001});

  FingerprintOptions one_thread;
  one_thread.threads = 1;
  CHECK(Taken(path, one_thread) == whole);
  int number = 0;
  for (const auto& [mesh, layout] : std::vector<std::pair<std::string, std::string>>{
           {"{x:1}", "[...]"}, {"{x:3}", "[..., <x>]"}, {"{x:2,y:2}", "[<y,x>, ...]"}, {"{x:7}", "[<x>, ...]"}}) {
    const std::string to = directory.path(absl::StrCat("dcp", number++));
    ConvertOptions options;
    options.format = CheckpointFormat::kDcp;
    REQUIRE(Convert(path, to, *LayoutRules::ForAll(mesh, layout), options).ok());
    CHECK(Taken(to) == whole);
  }
  ConvertOptions options;
  options.format = CheckpointFormat::kSafetensors;
  options.file_bytes = 1 << 20;
  REQUIRE(Convert(directory.path("dcp1"), directory.path("back"), std::nullopt, options).ok());
  CHECK(Taken(directory.path("back")) == whole);
}

TEST_CASE("the parts of a checkpoint's fingerprint add up to it, and each byte is in one of them") {
  const TemporaryDirectory directory;
  const std::string path = directory.Write("model.safetensors", FileOf(kWholes));
  ConvertOptions options;
  REQUIRE(Convert(path, directory.path("dcp"), *LayoutRules::ForAll("{x:3}", "[<x>, ...]"), options).ok());
  for (const std::string& at : {path, directory.path("dcp")}) {
    const CheckpointFingerprint whole = Taken(at);
    for (int64_t parts = 1; parts < 20; ++parts) {
      INFO(at << " in " << parts);
      std::map<std::string, ContentFingerprint> sums;
      ContentFingerprint sum;
      int64_t bytes = 0, most = 0;
      for (int64_t part = 0; part < parts; ++part) {
        FingerprintOptions of_part;
        of_part.part = part;
        of_part.parts = parts;
        const CheckpointFingerprint taken = Taken(at, of_part);
        for (const auto& [name, fingerprint] : ByName(taken)) sums[name] += fingerprint;
        sum += taken.fingerprint;
        bytes += taken.bytes;
        most = std::max(most, taken.bytes);
      }
      CHECK(sums == ByName(whole));
      CHECK(sum == whole.fingerprint);
      CHECK(bytes == whole.bytes);
      CHECK(most <= whole.bytes / parts + (int64_t{2} << 20));
    }
  }
  for (const auto& [part, parts] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {-1, 2}, {0, 0}, {5, 3}}) {
    FingerprintOptions senseless;
    senseless.part = part;
    senseless.parts = parts;
    CHECK(absl::IsInvalidArgument(FingerprintCheckpoint(path, senseless).status()));
  }
}

TEST_CASE("a changed bit, name, dtype or shape changes a checkpoint's fingerprint, and that of its tensor only") {
  const TemporaryDirectory directory;
  const std::string file = FileOf(kWholes);
  const std::map<std::string, ContentFingerprint> before = ByName(Taken(directory.Write("model.safetensors", file)));
  const auto changed = [&](std::string content) {
    std::vector<std::string> names;
    for (const auto& [name, fingerprint] : ByName(Taken(directory.Write("other.safetensors", content)))) {
      const auto found = before.find(name);
      if (found == before.end() || !(found->second == fingerprint)) names.push_back(name);
    }
    return names;
  };
  CHECK(changed(file).empty());
  size_t at = file.size() - DataOf(file, kWholes).size();
  for (const Whole& whole : kWholes) {
    const auto size = static_cast<size_t>(whole.bytes());
    for (const size_t byte : {size_t{0}, size / 2, size - 1}) {
      if (size == 0) continue;
      std::string flipped = file;
      flipped[at + byte] = static_cast<char>(flipped[at + byte] ^ 1);
      INFO(whole.name << ", byte " << byte);
      CHECK(changed(flipped) == std::vector<std::string>{whole.name});
    }
    at += size;
  }
  const auto with = [](size_t index, auto change) {
    std::vector<Whole> wholes = kWholes;
    change(wholes[index]);
    return FileOf(wholes);
  };
  CHECK(changed(with(0, [](Whole& w) { w.name = "b.weighs"; })) == std::vector<std::string>{"b.weighs"});
  CHECK(changed(with(0, [](Whole& w) { w.dtype = DType::kI32, w.stored_dtype = "I32"; })) ==
        std::vector<std::string>{"b.weight"});
  CHECK(changed(with(0, [](Whole& w) { w.shape = {1031, 700}; })) == std::vector<std::string>{"b.weight"});
  CHECK(changed(with(4, [](Whole& w) { w.shape = {5, 0}; })) == std::vector<std::string>{"empty"});
}

TEST_CASE("a recipe says what of a checkpoint has a fingerprint, and under which name") {
  const TemporaryDirectory directory;
  const std::string path = directory.Write("model.safetensors", FileOf(kWholes));
  const std::map<std::string, ContentFingerprint> all = ByName(Taken(path));
  FingerprintOptions options;
  options.recipe.selection.include = {"b.*"};
  std::map<std::string, ContentFingerprint> some = ByName(Taken(path, options));
  CHECK(some ==
        std::map<std::string, ContentFingerprint>{{"b.mask", all.at("b.mask")}, {"b.weight", all.at("b.weight")}});

  options.recipe = *Recipe::Parse(
      R"({"schema":"reshard.recipe/1","tensors":[{"to":"twice","from":{"concatenate":["b.weight","b.weight"],"dim":0}}],
          "keep":["step"],"drop":["*"]})");
  ConvertOptions to;
  to.format = CheckpointFormat::kSafetensors;
  to.recipe = options.recipe;
  REQUIRE(Convert(path, directory.path("made"), std::nullopt, to).ok());
  const CheckpointFingerprint made = Taken(directory.path("made"));
  REQUIRE(made.tensors.size() == 2);
  CHECK(Taken(path, options) == made);
  options.parts = 2;
  CheckpointFingerprint first = Taken(path, options);
  options.part = 1;
  first.fingerprint += Taken(path, options).fingerprint;
  CHECK(first.fingerprint == made.fingerprint);
}

TEST_CASE("what has no fingerprint is refused by name, and can be left out; asked to stop, it stops") {
  const TemporaryDirectory directory;
  const std::string path = directory.Write(
      "model.safetensors", SafetensorsBytes(R"({"odd":{"dtype":"F6_E3M2","shape":[4],"data_offsets":[0,3]},
                           "w":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
                                            5));
  const absl::Status refused = FingerprintCheckpoint(path).status();
  INFO(refused);
  CHECK(absl::IsUnimplemented(refused));
  CHECK(refused.ToString().find("odd: elements of type F6_E3M2") != std::string::npos);
  FingerprintOptions without;
  without.recipe.selection.exclude = {"odd"};
  CHECK(Taken(path, without).tensors.size() == 1);

  std::stop_source stop;
  stop.request_stop();
  FingerprintOptions options;
  options.stop = stop.get_token();
  CHECK(absl::IsCancelled(FingerprintCheckpoint(kFixtures + "/single", options).status()));
  CHECK(absl::IsNotFound(FingerprintCheckpoint(kFixtures + "/none").status()));
}

TEST_CASE("progress of a checkpoint's fingerprint ends with all of its bytes") {
  const TemporaryDirectory directory;
  const std::string path = directory.Write("model.safetensors", FileOf(kWholes));
  FingerprintOptions options;
  ConvertProgress last;
  options.progress = [&](const ConvertProgress& progress) { last = progress; };
  const CheckpointFingerprint taken = Taken(path, options);
  CHECK(last.done == taken.bytes);
  CHECK(last.total == taken.bytes);
}

}  // namespace
}  // namespace reshard
