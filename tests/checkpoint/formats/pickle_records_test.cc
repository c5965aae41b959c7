// Records are read in one go; what comes out must be what reading every opcode by itself gives, errors and limits
// included.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/formats/dcp/write_metadata.h"
#include "checkpoint/formats/pickle/machine.h"
#include "checkpoint/formats/pickle/opcodes.h"
#include "checkpoint/formats/pickle/pickle_machine.h"
#include "checkpoint/io/files.h"
#include "tests/catch.h"
#include "tests/checkpoint/formats/pickle_graph.h"
#include "tests/checkpoint/io/temp_directory.h"
#include "tests/sanitized.h"

namespace reshard::testing {
namespace {

struct Seen {
  int64_t same = 0;    // readings that both succeeded
  int64_t errors = 0;  // ... failed
  int64_t shaped = 0;
};

// From a file, of which as little as possible is in memory.
absl::StatusOr<pickle::Pickle> ReadThroughWindow(const std::string& bytes, const CatalogLimits& limits) {
  const auto file = io::ReadFile::OfBytes("bytes", std::make_shared<const std::string>(bytes));
  for (const pickle::Pickle::Way way : {pickle::Pickle::Way::kRecords, pickle::Pickle::Way::kOneByOne}) {
    pickle::PickleMachine machine(pickle::PickleInput(*file, 1), limits, {.way = way});
    absl::StatusOr<pickle::Pickle> pickle = machine.Run();
    if (!machine.wants_one_by_one()) return pickle;
  }
  return absl::InternalError("read opcode by opcode it wants to be read opcode by opcode");
}

void CheckSame(const std::string& bytes, const CatalogLimits& limits, Seen* seen) {
  const auto fast = pickle::Pickle::Read(bytes, limits);
  const auto slow = pickle::Pickle::Read(bytes, limits, /*persistent_ids=*/false, pickle::Pickle::Way::kOneByOne);
  REQUIRE(fast.status().ToString() == slow.status().ToString());
  const auto windowed = ReadThroughWindow(bytes, limits);
  REQUIRE(windowed.status().ToString() == slow.status().ToString());
  if (!fast.ok()) {
    ++seen->errors;
    return;
  }
  REQUIRE(Difference(*fast, *slow) == "");
  REQUIRE(CountShaped(*slow) == 0);
  REQUIRE(Difference(*windowed, *slow) == "");
  seen->shaped += CountShaped(*fast);
  ++seen->same;
}

class Chance {
 public:
  explicit Chance(uint64_t seed) : random_(seed) {}
  size_t Below(size_t count) { return random_() % count; }
  bool In(size_t count) { return Below(count) == 0; }
  uint64_t Any() { return random_(); }

 private:
  std::mt19937_64 random_;
};

// With all limits, with limits that it just meets or just misses, and with bytes changed or cut off.
void CheckWithMutations(const std::string& bytes, int mutations, Chance* chance, Seen* seen) {
  CheckSame(bytes, {}, seen);
  for (int i = 0; i < mutations / 4; ++i) {
    CatalogLimits limits;
    limits.objects = static_cast<int64_t>(1 + chance->Below(bytes.size() / 4));
    CheckSame(bytes, limits, seen);
    limits = {};
    limits.depth = static_cast<int64_t>(chance->Below(12));
    CheckSame(bytes, limits, seen);
  }
  for (int i = 0; i < mutations; ++i) {
    std::string changed = bytes;
    for (size_t n = 1 + chance->Below(3); n > 0; --n) {
      char& byte = changed[chance->Below(changed.size())];
      byte = chance->In(2) ? static_cast<char>(chance->Any()) : static_cast<char>(byte ^ (1 << chance->Below(8)));
    }
    if (chance->In(10)) changed.resize(chance->Below(changed.size()));
    CheckSame(changed, {}, seen);
  }
}

std::string ReadBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST_CASE("Records read in one go: the fixtures") {
  Chance chance(Seed());
  Seen seen;
  for (const auto& entry : std::filesystem::directory_iterator(RESHARD_SOURCE_DIR "/tests/checkpoint/fixtures")) {
    const std::string bytes = ReadBytes(entry.path() / ".metadata");
    if (bytes.empty()) continue;
    INFO(entry.path());
    CheckWithMutations(bytes, 300, &chance, &seen);
  }
  CHECK(seen.same > 20);
  CHECK(seen.shaped > 20);
  CHECK(seen.errors > 100);
}

TEST_CASE("A file is read as its bytes are: texts longer than its window, numbers, lines") {
  std::string bytes("\x80\x02]q\0(", 6);
  for (const size_t length : {size_t{0}, size_t{1}, size_t{255}, size_t{70'000}, size_t{600'000}}) {
    bytes += 'X';
    for (int k = 0; k < 4; ++k) bytes += static_cast<char>(length >> 8 * k & 255);
    bytes += std::string(length, static_cast<char>('a' + length % 7));
    // A name by two lines, and a number with 300 digits that only repeat the sign.
    bytes += "ctorch\nfloat32\n";
    bytes.append("\x8b\x2c\x01\0\0", 5);
    bytes.append(300, '\0');
  }
  bytes += "e.";
  Chance chance(Seed());
  Seen seen;
  CheckWithMutations(bytes, 100, &chance, &seen);
  CHECK(seen.same > 10);
  const TempDirectory directory;
  std::ofstream(directory / "pickle", std::ios::binary) << bytes;
  const auto file = io::ReadFile::Open(directory / "pickle");
  REQUIRE(file.ok());
  const auto read = pickle::Pickle::Read(**file, {});
  REQUIRE(read.status().ToString() == "OK");
  REQUIRE(Difference(*read, pickle::Pickle::Read(bytes, {}).value()) == "");
  // Shorter than it was when it was opened: an error that names it.
  std::filesystem::resize_file(directory / "pickle", 400'000);
  const auto cut = pickle::Pickle::Read(**file, {});
  CHECK(cut.status().code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(std::string(cut.status().message()), Catch::Contains("pickle") && Catch::Contains("400000"));
}

TEST_CASE("Records read in one go: pickles that Python wrote") {
  const TempDirectory directory;
  constexpr int kCount = testing::kSanitized ? 40 : 120;
  INFO("seed " << Seed());
  REQUIRE(std::system(absl::StrCat("python3 " RESHARD_SOURCE_DIR "/tests/checkpoint/formats/make_pickles.py ",
                                   directory.path(), " ", kCount, " ", Seed())
                          .c_str()) == 0);
  Chance chance(Seed());
  Seen seen;
  for (int i = 0; i < kCount; ++i) {
    INFO("pickle " << i);
    CheckWithMutations(ReadBytes(directory / std::to_string(i)), 60, &chance, &seen);
  }
  CHECK(seen.same > 8 * kCount);
  CHECK(seen.errors > 8 * kCount);
  CHECK(seen.shaped > 40 * kCount);
}

TEST_CASE("Records read in one go: what this library writes is records") {
  constexpr int64_t kTensors = 3;
  constexpr int64_t kChunks = 50;
  const std::vector<int64_t> shape = {kChunks, 4};
  const std::vector<int64_t> size = {1, 4};
  const std::vector<std::string> names = {"a", "b", "c"};
  std::vector<std::vector<int64_t>> offsets;
  for (int64_t i = 0; i < kChunks; ++i) offsets.push_back({i, 0});
  std::vector<dcp::MetadataTensor> tensors;
  for (const std::string& name : names) {
    dcp::MetadataTensor tensor{name, DType::kF32, shape, false, {}};
    for (const std::vector<int64_t>& offset : offsets)
      tensor.chunks.push_back({offset, size, {0, int64_t{1} << 40, 16}});
    tensors.push_back(std::move(tensor));
  }
  const std::vector<std::string> files = {"__0_0.distcp"};
  const std::string bytes = dcp::WriteMetadata(tensors, {}, {}, files, {}, "id", "id");
  const auto pickle = pickle::Pickle::Read(bytes, {});
  REQUIRE(pickle.status().ToString() == "OK");
  // For each chunk itself, its index and its place; but for the first of each kind and what is in the last 1 KiB.
  CHECK(CountShaped(*pickle) > 3 * kTensors * kChunks - 50);
  Chance chance(Seed());
  Seen seen;
  CheckWithMutations(bytes, 300, &chance, &seen);
}

// Pickles of objects that are records, or nearly.
class NearRecords {
 public:
  explicit NearRecords(Chance* chance) : chance_(*chance) {}

  std::string Make() {
    out_ = "\x80\x04";
    for (const auto& [module, name] : {std::pair<const char*, const char*>{"torch", "Size"},
                                       {"torch.distributed.checkpoint.metadata", "ChunkStorageMetadata"},
                                       {"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
                                       {"a", "Stranger"}}) {
      Text(module);
      Text(name);
      Op(pickle::PickleOp::kStackGlobal);
      Remember(&classes_);
    }
    for (const char* key : {"offsets", "sizes", "fqn", "index", "offset", "length"}) {
      Text(key);
      Remember(&keys_);
    }
    Op(pickle::PickleOp::kPopMark);  // see below: the mark that everything above lies on
    out_.insert(2, 1, static_cast<char>(pickle::PickleOp::kMark));
    Op(pickle::PickleOp::kEmptyList);
    Op(pickle::PickleOp::kMark);
    for (size_t i = 1 + chance_.Below(30); i > 0; --i) Object();
    Op(pickle::PickleOp::kBinUnicode);  // so that no record is near the end
    Number<uint32_t>(1500);
    out_.append(1500, 'x');
    Op(pickle::PickleOp::kAppends);
    Op(pickle::PickleOp::kStop);
    return out_;
  }

 private:
  void Op(pickle::PickleOp op) { out_.push_back(static_cast<char>(op)); }
  template <typename T>
  void Number(T number) {
    out_.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  void Text(std::string_view text) {
    Op(pickle::PickleOp::kShortBinUnicode);
    out_.push_back(static_cast<char>(text.size()));
    out_ += text;
  }
  void Remember(std::vector<size_t>* into) {
    Op(pickle::PickleOp::kMemoize);
    into->push_back(remembered_++);
  }
  // Most of the time.
  void Memoize() {
    if (rarely_ && chance_.In(5)) return;
    Op(pickle::PickleOp::kMemoize);
    ++remembered_;
  }
  void Get(size_t index) {
    if (index < 256 && !chance_.In(4)) {
      Op(pickle::PickleOp::kBinGet);
      out_.push_back(static_cast<char>(index));
    } else {
      Op(pickle::PickleOp::kLongBinGet);
      Number(static_cast<uint32_t>(index));
    }
  }

  void Int() {
    switch (chance_.Below(5)) {
      case 0:
        Op(pickle::PickleOp::kBinInt1);
        Number(static_cast<uint8_t>(chance_.Any()));
        break;
      case 1:
        Op(pickle::PickleOp::kBinInt2);
        Number(static_cast<uint16_t>(chance_.Any()));
        break;
      case 2:
        Op(pickle::PickleOp::kBinInt);
        Number(static_cast<uint32_t>(chance_.Any()));
        break;
      case 3:
        Op(pickle::PickleOp::kBinInt);
        Number(static_cast<int32_t>((1 << 30) - 1 + static_cast<int>(chance_.Below(2))) * (chance_.In(2) ? 1 : -1));
        break;
      default: {
        const size_t length = rarely_ ? chance_.Below(11) : 1 + chance_.Below(8);
        Op(pickle::PickleOp::kLong1);
        out_.push_back(static_cast<char>(length));
        for (size_t i = 0; i < length; ++i) out_.push_back(chance_.In(3) ? '\xff' : static_cast<char>(chance_.Any()));
      }
    }
  }

  void Size() {
    Get(classes_[0]);
    const size_t count = chance_.Below(rarely_ ? 11 : 5);
    const bool marked = count > 3 || chance_.In(8);
    if (marked) Op(pickle::PickleOp::kMark);
    for (size_t i = 0; i < count; ++i) Int();
    constexpr pickle::PickleOp kEnds[] = {pickle::PickleOp::kEmptyTuple, pickle::PickleOp::kTuple1,
                                          pickle::PickleOp::kTuple2, pickle::PickleOp::kTuple3};
    Op(marked ? pickle::PickleOp::kTuple : kEnds[rarely_ && chance_.In(20) ? chance_.Below(4) : count]);
    if (count > 0) Memoize();
    if (!(rarely_ && chance_.In(30))) Op(pickle::PickleOp::kTuple1);
    Memoize();
    Op(pickle::PickleOp::kReduce);
    Memoize();
  }

  void ValueOfField() {
    if (rarely_ && chance_.In(3)) {
      switch (chance_.Below(5)) {
        case 0:
          return Get(chance_.Below(remembered_ + 2));
        case 1:
          return Op(pickle::PickleOp::kNewTrue);
        case 2:
          Text("text");
          return Memoize();
        case 3:
          Op(pickle::PickleOp::kEmptyList);
          return Memoize();
        default:
          return Op(pickle::PickleOp::kNone);
      }
    }
    if (chance_.In(2)) return Size();
    if (chance_.In(3)) return Get(keys_[chance_.Below(keys_.size())]);
    Int();
  }

  void Object() {
    rarely_ = chance_.In(3);
    if (rarely_ && chance_.In(6)) {
      Get(chance_.Below(remembered_ + 2));
    } else {
      Get(classes_[1 + chance_.Below(3)]);
    }
    Op(pickle::PickleOp::kEmptyTuple);
    Op(pickle::PickleOp::kNewObj);
    Memoize();
    Op(pickle::PickleOp::kEmptyDict);
    Memoize();
    Op(pickle::PickleOp::kMark);
    const size_t fields = rarely_ ? chance_.Below(10) : 1 + chance_.Below(4);
    for (size_t i = 0; i < fields; ++i) {
      Get(rarely_ && chance_.In(20) ? chance_.Below(remembered_) : keys_[chance_.Below(keys_.size())]);
      ValueOfField();
    }
    Op(pickle::PickleOp::kSetItems);
    if (!(rarely_ && chance_.In(10))) Op(pickle::PickleOp::kBuild);
    if (rarely_) After();
  }

  // What a writer might do next that concerns the object before.
  void After() {
    switch (chance_.Below(9)) {
      case 0:  // another state
        Op(pickle::PickleOp::kEmptyDict);
        return Op(pickle::PickleOp::kBuild);
      case 1:  // some part of it, as another list member
        return Get(remembered_ - 1 - chance_.Below(std::min<size_t>(remembered_, 8)));
      case 2:  // its number again
        Op(pickle::PickleOp::kBinPut);
        return out_.push_back(static_cast<char>(chance_.Below(std::min<size_t>(remembered_ + 2, 256))));
      case 3:
        return Op(pickle::PickleOp::kDup);
      case 4:
        Op(pickle::PickleOp::kFrame);
        return Number(static_cast<uint64_t>(chance_.Below(2000)));
      case 5:  // an item into some part of it
        Get(remembered_ - 1 - chance_.Below(std::min<size_t>(remembered_, 8)));
        Op(pickle::PickleOp::kNone);
        Op(pickle::PickleOp::kNone);
        return Op(pickle::PickleOp::kSetItem);
      default:
        return;
    }
  }

  Chance& chance_;
  std::string out_;
  size_t remembered_ = 0;
  bool rarely_ = false;  // whether things may happen now that seldom do
  std::vector<size_t> classes_;
  std::vector<size_t> keys_;
};

TEST_CASE("Records read in one go: what is a record or nearly one") {
  INFO("seed " << Seed());
  Chance chance(Seed());
  Seen seen;
  for (int i = 0; i < 4000; ++i) {
    INFO("pickle " << i);
    CheckWithMutations(NearRecords(&chance).Make(), 8, &chance, &seen);
  }
  INFO(seen.same << " read, " << seen.errors << " refused, " << seen.shaped << " records");
  CHECK(seen.same > 5000);
  CHECK(seen.errors > 5000);
  CHECK(seen.shaped > 30000);
}

}  // namespace
}  // namespace reshard::testing
