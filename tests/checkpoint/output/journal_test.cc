#include "checkpoint/output/journal.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/checkpoint/io/faults.h"
#include "tests/checkpoint/io/temp_directory.h"
#include "tests/file_bytes.h"

namespace reshard {
namespace {

using testing::Call;
using testing::Fault;
using testing::FaultySystem;
using testing::FileBytes;
using testing::TempDirectory;
using Pieces = std::vector<output::FinishedPiece>;

constexpr size_t kHeader = 40;
constexpr size_t kRecord = 36;

output::FinishedPiece PieceOf(uint64_t number) {
  return {number, number * 0x9E3779B97F4A7C15, ~number, static_cast<uint32_t>(number * 2654435761)};
}

Pieces PiecesOf(size_t count) {
  Pieces pieces;
  for (size_t i = 0; i < count; ++i) pieces.push_back(PieceOf(i));
  return pieces;
}

void PutFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

std::unique_ptr<output::Journal> MustOpen(const std::string& path, const std::string& job = "job") {
  auto journal = output::Journal::Open(path, job);
  INFO(journal.status());
  REQUIRE(journal.ok());
  return *std::move(journal);
}

// The bytes of a journal with `count` records.
std::string Written(const std::string& path, size_t count, const std::string& job = "job") {
  std::filesystem::remove(path);
  auto journal = MustOpen(path, job);
  for (const output::FinishedPiece& piece : PiecesOf(count)) REQUIRE(journal->Add(piece).ok());
  REQUIRE(journal->Sync().ok());
  return FileBytes(path);
}

TEST_CASE("a journal returns what was added, in order") {
  TempDirectory directory;
  const std::string path = directory / "journal-0";
  {
    auto journal = MustOpen(path);
    CHECK(journal->found().empty());
    CHECK(journal->dropped_bytes() == 0);
    REQUIRE(journal->Add(PieceOf(0)).ok());
    REQUIRE(journal->Add({PieceOf(1), PieceOf(2)}).ok());
    REQUIRE(journal->Sync().ok());
  }
  {
    auto journal = MustOpen(path);
    CHECK(journal->found() == PiecesOf(3));
    CHECK(journal->dropped_bytes() == 0);
    REQUIRE(journal->Add(PieceOf(3)).ok());
  }
  CHECK(MustOpen(path)->found() == PiecesOf(4));
  CHECK(FileBytes(path).size() == kHeader + 4 * kRecord);
}

TEST_CASE("a journal longer than what is read at once") {
  TempDirectory directory;
  const std::string path = directory / "journal-0";
  const Pieces pieces = PiecesOf(100'000);
  REQUIRE(MustOpen(path)->Add(pieces).ok());
  CHECK(MustOpen(path)->found() == pieces);
}

TEST_CASE("the journal of another job is refused and kept") {
  TempDirectory directory;
  const std::string path = directory / "journal-0";
  const std::string content = Written(path, 2);
  CHECK(output::Journal::Open(path, "other").status().code() == absl::StatusCode::kDataLoss);
  CHECK(FileBytes(path) == content);
  // Records of another job behind our header are none of ours.
  const std::string others = Written(path, 2, "other");
  PutFile(path, content.substr(0, kHeader) + others.substr(kHeader));
  auto journal = MustOpen(path);
  CHECK(journal->found().empty());
  CHECK(journal->dropped_bytes() == 2 * kRecord);
  journal = nullptr;
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  CHECK(output::Journal::Open(path, "job").status().code() == absl::StatusCode::kDataLoss);
  CHECK(output::Journal::Open(directory / "absent/journal-0", "job").status().code() == absl::StatusCode::kNotFound);
}

// Opens what was damaged so that `whole` records are left, goes on with it, and reads that again.
void CheckDamaged(const std::string& path, const std::string& damaged, size_t whole, bool header) {
  PutFile(path, damaged);
  FaultySystem without_waiting_for_the_disk;
  io::ScopedSystem scoped(&without_waiting_for_the_disk);
  {
    auto journal = MustOpen(path);
    CHECK(journal->found() == PiecesOf(whole));
    CHECK(journal->dropped_bytes() == static_cast<int64_t>(damaged.size() - (header ? kHeader + whole * kRecord : 0)));
    REQUIRE(journal->Add(PieceOf(whole)).ok());
  }
  auto journal = MustOpen(path);
  CHECK(journal->found() == PiecesOf(whole + 1));
  CHECK(journal->dropped_bytes() == 0);
}

TEST_CASE("a journal cut off at any byte gives the records before") {
  TempDirectory directory;
  const std::string path = directory / "journal-0";
  const std::string content = Written(path, 4);
  for (size_t bytes = 0; bytes <= content.size(); ++bytes) {
    INFO(bytes << " bytes");
    const bool header = bytes >= kHeader;
    CheckDamaged(path, content.substr(0, bytes), header ? (bytes - kHeader) / kRecord : 0, header);
    // What a power failure may leave where data were to come.
    std::string zeros = content;
    zeros.replace(bytes, std::string::npos, content.size() - bytes, '\0');
    CheckDamaged(path, zeros, header ? (bytes - kHeader) / kRecord : 0, header);
  }
}

TEST_CASE("a journal with any bit flipped gives the records before") {
  TempDirectory directory;
  const std::string path = directory / "journal-0";
  const std::string content = Written(path, 4);
  for (size_t byte = 0; byte < content.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      INFO("byte " << byte << ", bit " << bit);
      std::string flipped = content;
      flipped[byte] = static_cast<char>(flipped[byte] ^ (1 << bit));
      const bool header = byte >= kHeader;
      CheckDamaged(path, flipped, header ? (byte - kHeader) / kRecord : 0, header);
    }
  }
}

TEST_CASE("bytes of any kind are not records") {
  TempDirectory directory;
  const std::string path = directory / "journal-0";
  const std::string content = Written(path, 2);
  std::mt19937_64 random(testing::Seed());
  for (int round = 0; round < 200; ++round) {
    std::string noise(random() % 300, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    CheckDamaged(path, content + noise, 2, true);
    CheckDamaged(path, noise, 0, false);
  }
}

TEST_CASE("records are added from many threads") {
  TempDirectory directory;
  const std::string path = directory / "journal-0";
  constexpr uint64_t kThreads = 4, kEach = 500;
  {
    auto journal = MustOpen(path);
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&journal, t] {
        for (uint64_t i = 0; i < kEach; ++i) {
          if (!journal->Add(PieceOf(t * kEach + i)).ok()) return;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<uint64_t> numbers;
  const auto journal = MustOpen(path);
  for (const output::FinishedPiece& piece : journal->found()) {
    CHECK(piece == PieceOf(piece.piece));
    numbers.push_back(piece.piece);
  }
  std::sort(numbers.begin(), numbers.end());
  REQUIRE(numbers.size() == kThreads * kEach);
  for (uint64_t i = 0; i < numbers.size(); ++i) CHECK(numbers[i] == i);
}

// Opens and adds four records, one by one, for as long as all goes well. How many were said to be added.
size_t AddFour(const std::string& path, bool* opened) {
  auto journal = output::Journal::Open(path, "job");
  *opened = journal.ok();
  size_t added = 0;
  if (journal.ok()) {
    while (added < 4 && (*journal)->Add(PieceOf(added)).ok()) ++added;
  }
  return added;
}

TEST_CASE("a journal in which any call fails holds what was added before") {
  for (const Fault& chosen :
       {Fault{.kind = Fault::kFails, .error = EIO}, Fault{.kind = Fault::kFails, .error = ENOSPC},
        Fault{.kind = Fault::kFails, .error = EINTR}, Fault{.kind = Fault::kOneByte, .onwards = true},
        Fault{.kind = Fault::kHalf}, Fault{.kind = Fault::kCrash}}) {
    Fault fault = chosen;
    for (bool happened = true; happened; ++fault.at) {
      INFO("kind " << fault.kind << ", error " << fault.error << " at call " << fault.at);
      TempDirectory directory;
      const std::string path = directory / "journal-0";
      FaultySystem system(fault);
      bool opened = false;
      size_t added = 0;
      {
        io::ScopedSystem scoped(&system);
        added = AddFour(path, &opened);
      }
      happened = system.happened();
      CHECK(system.open() == 0);
      if (fault.error == EINTR || fault.kind == Fault::kOneByte || fault.kind == Fault::kHalf) {
        CHECK(opened);
        CHECK(added == 4);
      }
      CHECK(MustOpen(path)->found() == PiecesOf(added));
    }
    CHECK(fault.at > 5);
  }
}

TEST_CASE("what a failed write left is written over") {
  TempDirectory directory;
  const std::string path = directory / "journal-0";
  {
    auto journal = MustOpen(path);
    REQUIRE(journal->Add(PieceOf(0)).ok());
    // One byte is written, then the disk is full.
    class Full : public io::System {
     public:
      ssize_t PWrite(int fd, const void* data, size_t, off_t at) override {
        if (written_) return errno = ENOSPC, -1;
        written_ = true;
        return io::System::PWrite(fd, data, 1, at);
      }
      bool written_ = false;
    } full;
    {
      io::ScopedSystem scoped(&full);
      CHECK(journal->Add(PieceOf(7)).code() == absl::StatusCode::kResourceExhausted);
    }
    REQUIRE(journal->Add(PieceOf(1)).ok());
  }
  auto journal = MustOpen(path);
  CHECK(journal->found() == PiecesOf(2));
  CHECK(journal->dropped_bytes() == 0);
}

}  // namespace
}  // namespace reshard
