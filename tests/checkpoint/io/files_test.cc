// Files when the system does less than it was asked for, or nothing.
#include "checkpoint/io/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "reshard/checkpoint/error.h"
#include "tests/catch.h"
#include "tests/checkpoint/io/faults.h"
#include "tests/checkpoint/io/staged_job.h"
#include "tests/checkpoint/io/temp_directory.h"

namespace reshard {
namespace {

using testing::Call;
using testing::Fault;
using testing::FaultySystem;
using testing::PutContent;
using testing::TempDirectory;
using Code = absl::StatusCode;

std::string Numbered(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 7 + i / 251);
  return text;
}

TEST_CASE("files: short counts and interruptions do not show") {
  const std::string content = Numbered(1000);
  for (const Fault& fault :
       {Fault{.kind = Fault::kOneByte, .onwards = true}, Fault{.kind = Fault::kHalf, .onwards = true},
        Fault{.kind = Fault::kFails, .error = EINTR}, Fault{.kind = Fault::kFails, .at = 1, .error = EINTR},
        Fault{.kind = Fault::kFails, .at = 2, .error = EINTR}}) {
    TempDirectory directory;
    const std::string path = directory / "file";
    FaultySystem system(fault);
    {
      const io::ScopedSystem scoped(&system);
      const auto file = io::WriteFile::Create(path, 1000);
      REQUIRE(file.ok());
      CHECK((*file)->WriteAt(300, std::string_view(content).substr(300)).ok());
      CHECK((*file)->WriteAt(0, std::string_view(content).substr(0, 300)).ok());
      CHECK((*file)->Sync().ok());
      CHECK((*file)->Close().ok());
    }
    CHECK(system.open() == 0);
    FaultySystem reading(fault);
    {
      const io::ScopedSystem scoped(&reading);
      const auto file = io::ReadFile::Open(path);
      REQUIRE(file.ok());
      CHECK((*file)->bytes() == 1000);
      std::string part(500, '\0');
      CHECK((*file)->ReadAt(123, absl::MakeSpan(part)).ok());
      CHECK(part == content.substr(123, 500));
      CHECK(*(*file)->ReadAll(1000) == content);
      CHECK((*file)->ReadAll(999).status().code() == Code::kResourceExhausted);
    }
    CHECK(reading.open() == 0);
  }
}

TEST_CASE("files: errors are told with the path, and nothing stays open") {
  struct Row {
    Call call;
    int error;
    Code code;
  };
  const Row kRows[] = {
      {Call::kOpen, EACCES, Code::kUnavailable},
      {Call::kOpen, ENOENT, Code::kNotFound},
      {Call::kOpen, EMFILE, Code::kUnavailable},
      {Call::kFAllocate, ENOSPC, Code::kResourceExhausted},
      {Call::kFAllocate, EIO, Code::kUnavailable},
      {Call::kFAllocate, EOPNOTSUPP, Code::kOk},
      {Call::kPWrite, ENOSPC, Code::kResourceExhausted},
      {Call::kPWrite, EDQUOT, Code::kResourceExhausted},
      {Call::kPWrite, EIO, Code::kUnavailable},
      {Call::kFTruncate, EIO, Code::kUnavailable},
      {Call::kFSync, EIO, Code::kUnavailable},
      {Call::kClose, EIO, Code::kUnavailable},
      {Call::kClose, EINTR, Code::kOk},
  };
  for (const Row& row : kRows) {
    INFO("call " << static_cast<int>(row.call) << ", error " << row.error);
    TempDirectory directory;
    const std::string path = directory / "file";
    FaultySystem system({.kind = Fault::kFails, .error = row.error, .calls = {row.call}});
    absl::Status status;
    {
      const io::ScopedSystem scoped(&system);
      const auto file = io::WriteFile::Create(path, 100);
      status = file.status();
      if (status.ok()) status = (*file)->WriteAt(0, "abc");
      if (status.ok()) status = (*file)->Truncate(3);
      if (status.ok()) status = (*file)->Sync();
      if (status.ok()) status = (*file)->Close();
    }
    INFO(status);
    CHECK(system.happened());
    CHECK(system.open() == 0);
    CHECK(status.code() == row.code);
    if (!status.ok()) CHECK(std::string(status.message()).find(path) != std::string::npos);
    if (!status.ok()) CHECK(reshard::KindOf(status) == CheckpointError::kSystem);
    // A file that there is no room for is not left behind.
    if (row.call == Call::kFAllocate && !status.ok()) CHECK(io::KindOf(path).value() == io::FileKind::kNothing);
  }
  for (const Row& row : {Row{Call::kOpen, EIO, Code::kUnavailable}, Row{Call::kFStat, EIO, Code::kUnavailable},
                         Row{Call::kPRead, EIO, Code::kUnavailable}, Row{Call::kPRead, EINTR, Code::kOk}}) {
    TempDirectory directory;
    PutContent(directory.path(), {{"file", "abc"}});
    FaultySystem system({.kind = Fault::kFails, .error = row.error, .calls = {row.call}});
    absl::Status status;
    {
      const io::ScopedSystem scoped(&system);
      const auto file = io::ReadFile::Open(directory / "file");
      status = file.status();
      if (status.ok()) status = (*file)->ReadAll(3).status();
    }
    CHECK(system.open() == 0);
    CHECK(status.code() == row.code);
  }
}

TEST_CASE("files: what ends too early, and what is not a file") {
  TempDirectory directory;
  PutContent(directory.path(), {{"file", "abc"}, {"folder/inside", ""}});
  const auto file = io::ReadFile::Open(directory / "file");
  REQUIRE(file.ok());
  std::string part(2, '\0');
  CHECK((*file)->ReadAt(1, absl::MakeSpan(part)).ok());
  const absl::Status beyond = (*file)->ReadAt(2, absl::MakeSpan(part));
  CHECK(beyond.code() == Code::kDataLoss);
  CHECK(std::string(beyond.message()).find("ends at byte 3") != std::string::npos);
  CHECK(io::ReadFile::Open(directory / "folder").status().code() == Code::kDataLoss);
  REQUIRE(symlink("file", (directory / "link").c_str()) == 0);
  CHECK(io::ReadFile::Open(directory / "link").status().code() == Code::kDataLoss);
  CHECK(io::ReadFile::Open(directory / "link", /*follow_links=*/true).ok());
  CHECK(io::WriteFile::Create(directory / "link").status().code() == Code::kAlreadyExists);
  CHECK_FALSE(io::WriteFile::Reopen(directory / "link").ok());
  REQUIRE(mkfifo((directory / "pipe").c_str(), 0600) == 0);
  CHECK(io::ReadFile::Open(directory / "pipe").status().code() == Code::kDataLoss);  // and does not wait
  CHECK(*io::ListDirectory(directory.path()) == std::vector<std::string>{"file", "folder", "link", "pipe"});
  CHECK(io::ListDirectory(directory / "none").status().code() == Code::kNotFound);
  FaultySystem system({.kind = Fault::kFails, .at = 2, .calls = {Call::kReadDir}});
  {
    const io::ScopedSystem scoped(&system);
    CHECK(io::ListDirectory(directory.path()).status().code() == Code::kUnavailable);
  }
  CHECK(system.open() == 0);
}

}  // namespace
}  // namespace reshard
