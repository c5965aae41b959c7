// Checkpoints cut off and flipped at every place: what is read is an error or what was written, never anything else.
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/formats/zip/reader.h"
#include "checkpoint/io/files.h"
#include "checkpoint/source/source.h"
#include "reshard/checkpoint/convert.h"
#include "tests/catch.h"
#include "tests/checkpoint/io/temp_directory.h"
#include "tests/file_bytes.h"
#include "tests/sanitized.h"

namespace reshard::testing {
namespace {

namespace fs = std::filesystem;

const std::string kFixtures = RESHARD_SOURCE_DIR "/tests/checkpoint/fixtures/";

// At how many places a file is cut: every byte of these files, where time allows.
constexpr uintmax_t kCuts = kSanitized ? 1000 : 20'000;
// And at how many a byte is flipped.
constexpr int64_t kFlips = kSanitized ? 400 : 3000;

// Name -> dtype, shape and bytes of everything that a checkpoint holds.
using Contents = std::map<std::string, std::string>;

// What an archive carries: the bytes between its records carry nothing.
absl::StatusOr<std::string> Carried(const Catalog& catalog, const Catalog::FileRange& place) {
  const auto file = io::ReadFile::Open(io::JoinPath(catalog.root(), catalog.files()[place.file].path));
  if (!file.ok()) return file.status();
  const absl::StatusOr<zip::ZipArchive> archive = zip::ZipArchive::Open(**file, place.at, place.length);
  if (!archive.ok()) return archive.status();
  std::string carried;
  for (const zip::ZipArchive::Record& record : archive->records()) {
    const absl::StatusOr<std::string> payload = archive->ReadPayload(record, 1 << 20);
    if (!payload.ok()) return payload.status();
    carried += record.name + "=" + *payload + "\n";
  }
  return carried;
}

absl::StatusOr<Contents> ReadContents(const std::string& path) {
  const absl::StatusOr<std::unique_ptr<source::Source>> source = source::Source::Open(path, {});
  if (!source.ok()) return source.status();
  const Catalog& catalog = (*source)->catalog();
  Contents contents;
  for (size_t t = 0; t < catalog.tensors().size(); ++t) {
    const Catalog::Tensor& tensor = catalog.tensors()[t];
    std::string& text = contents[std::string(tensor.name)];
    text = std::string(tensor.stored_dtype);
    for (const int64_t size : tensor.shape) text += " " + std::to_string(size);
    if (!tensor.dtype) continue;
    if (tensor.bytes > int64_t{1} << 24) return absl::ResourceExhaustedError("more than was written");
    std::string bytes(static_cast<size_t>(tensor.bytes), '\0');
    const std::vector<int64_t> zero(tensor.shape.size(), 0);
    absl::Status read = (*source)->Read(static_cast<int64_t>(t), zero, tensor.shape, absl::MakeSpan(bytes));
    if (!read.ok()) return read;
    text += ": " + bytes;
  }
  for (size_t i = 0; i < catalog.byte_items().size(); ++i) {
    const Catalog::ByteItem& item = catalog.byte_items()[i];
    std::string bytes(static_cast<size_t>(item.place.length), '\0');
    absl::Status read = (*source)->ReadItem(static_cast<int64_t>(i), 0, absl::MakeSpan(bytes));
    if (!read.ok()) return read;
    absl::StatusOr<std::string> carried = Carried(catalog, item.place);
    if (!carried.ok()) return carried.status();
    contents["item " + std::string(item.name)] = *carried;
  }
  return contents;
}

// A copy of a checkpoint whose files are damaged one at a time.
class Patient {
 public:
  explicit Patient(const std::string& from) : path_(dir_ / "c") {
    fs::copy(from, path_, fs::copy_options::recursive);
    const absl::StatusOr<Contents> contents = ReadContents(path_);
    REQUIRE(contents.status().ToString() == "OK");
    good_ = *contents;
    for (const auto& entry : fs::recursive_directory_iterator(path_)) {
      if (entry.is_regular_file()) files_.push_back(fs::relative(entry.path(), path_).string());
    }
    std::sort(files_.begin(), files_.end());
  }

  const std::vector<std::string>& files() const { return files_; }
  int64_t found() const { return found_; }
  int64_t harmless() const { return harmless_; }
  int64_t other() const { return other_; }

  // Cuts the file at every byte, or at `most` places.
  void CutOff(const std::string& file, uintmax_t most) {
    const std::string bytes = Bytes(file);
    const size_t step = std::max<size_t>(1, bytes.size() / most);
    for (size_t length = bytes.size(); length-- > 0;) {
      if (length % step != 0 && bytes.size() - length > 100) continue;
      fs::resize_file(path_ + "/" + file, length);
      Judge(file + " cut to " + std::to_string(length) + " bytes", /*may_differ=*/false);
    }
    std::ofstream(path_ + "/" + file, std::ios::binary) << bytes;
  }

  // Flips bits of every `step`-th byte. `may_differ`: what is read then may be something else, without a crash.
  void Flip(const std::string& file, size_t step, bool may_differ) {
    const std::string bytes = Bytes(file);
    std::fstream out(path_ + "/" + file, std::ios::binary | std::ios::in | std::ios::out);
    const auto put = [&](size_t at, char byte) {
      out.seekp(static_cast<std::streamoff>(at));
      out.put(byte).flush();
    };
    for (size_t at = 0; at < bytes.size(); at += step) {
      for (const int mask : {0x01, 0x20, 0x80, 0xff}) {
        put(at, static_cast<char>(bytes[at] ^ mask));
        Judge(file + ", byte " + std::to_string(at) + " ^ " + std::to_string(mask), may_differ);
      }
      put(at, bytes[at]);
    }
  }

 private:
  std::string Bytes(const std::string& file) const { return FileBytes(path_ + "/" + file); }

  void Judge(const std::string& what, bool may_differ) {
    const absl::StatusOr<Contents> contents = ReadContents(path_);
    if (contents.ok()) {
      if (*contents == good_) {
        ++harmless_;
      } else if (may_differ) {
        ++other_;
      } else {
        FAIL(what << ": other contents");
      }
      return;
    }
    ++found_;
    const absl::Status& status = contents.status();
    // A name that is another one is not a file: NotFound would be the caller's mistake.
    const bool expected = absl::IsDataLoss(status) || absl::IsInvalidArgument(status) ||
                          absl::IsUnimplemented(status) || absl::IsResourceExhausted(status);
    if (!expected || status.message().size() < 10) FAIL(what << ": " << status);
  }

  TempDirectory dir_;
  std::string path_;
  Contents good_;
  std::vector<std::string> files_;
  int64_t found_ = 0;
  int64_t harmless_ = 0;
  int64_t other_ = 0;
};

// Every `step`-th byte, so that a file has at most so many.
size_t StepFor(const std::string& path, int64_t most) {
  return static_cast<size_t>(std::max<uintmax_t>(1, fs::file_size(path) / static_cast<uintmax_t>(most)));
}

// A fixture as this library writes it.
std::string Rewritten(const TempDirectory& dir, const std::string& fixture, CheckpointFormat format) {
  std::optional<LayoutRules> rules;
  if (format == CheckpointFormat::kDcp) {
    absl::StatusOr<LayoutRules> parsed = LayoutRules::ForAll("{x:2}", "[<x>, ...]");
    if (fixture == "single") parsed = LayoutRules::ForAll("{x:2}", "[...]");  // it has scalars
    REQUIRE(parsed.ok());
    rules = *std::move(parsed);
  }
  ConvertOptions options;
  options.format = format;
  const std::string path = dir / "written";
  const absl::StatusOr<ConvertSummary> done = Convert(kFixtures + fixture, path, rules, options);
  REQUIRE(done.status().ToString() == "OK");
  return path;
}

int64_t PeakBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

TEST_CASE("Checkpoints of PyTorch that are cut off anywhere") {
  for (const char* name : {"single", "grid2x3_threads", "hf_consolidated", "hf_sharded"}) {
    INFO(name);
    Patient patient(kFixtures + name);
    for (const std::string& file : patient.files()) patient.CutOff(file, kCuts);
    CHECK(patient.found() > 500);
    CHECK(patient.other() == 0);
  }
}

TEST_CASE("Checkpoints that this library wrote are cut off anywhere") {
  for (const CheckpointFormat format :
       {CheckpointFormat::kDcp, CheckpointFormat::kSafetensors, CheckpointFormat::kOrbax}) {
    const TempDirectory dir;
    Patient patient(Rewritten(dir, "single", format));
    for (const std::string& file : patient.files()) patient.CutOff(file, kCuts);
    CHECK(patient.found() > 1000);
  }
}

TEST_CASE("Every flipped byte of a checkpoint with a sidecar is found or carries nothing") {
  for (const CheckpointFormat format :
       {CheckpointFormat::kDcp, CheckpointFormat::kSafetensors, CheckpointFormat::kOrbax}) {
    const TempDirectory dir;
    const std::string path = Rewritten(dir, "single", format);
    Patient patient(path);
    REQUIRE(std::count(patient.files().begin(), patient.files().end(), "reshard.json") == 1);
    for (const std::string& file : patient.files()) {
      patient.Flip(file, StepFor(path + "/" + file, kFlips), /*may_differ=*/false);
    }
    CHECK(patient.found() > kFlips / 3);
  }
}

TEST_CASE("Flipped bytes of streams of PyTorch are found or carry nothing") {
  const std::string path = kFixtures + "single";
  Patient patient(path);
  patient.Flip("__0_0.distcp", StepFor(path + "/__0_0.distcp", kFlips), /*may_differ=*/false);
  CHECK(patient.found() > kFlips / 3);
}

TEST_CASE("Flipped bytes of metadata without a sidecar never do harm") {
  const int64_t before = PeakBytes();
  int64_t other = 0;
  for (const char* name : {"single", "grid2x3_threads", "hf_consolidated", "hf_sharded"}) {
    INFO(name);
    Patient patient(kFixtures + name);
    for (const std::string& file : patient.files()) {
      if (file.ends_with(".distcp")) continue;
      patient.Flip(file, kSanitized ? 3 : 1, /*may_differ=*/true);
    }
    CHECK(patient.found() > (kSanitized ? 100 : 300));
    other += patient.other();
  }
  CHECK(other > 0);  // names, offsets that are right for another box: nothing is there to tell
  constexpr int64_t kMost = kAddressSanitized ? int64_t{4} << 30 : int64_t{256} << 20;
  CHECK(PeakBytes() - before < kMost);
}

}  // namespace
}  // namespace reshard::testing
