#include "checkpoint/io/staged_directory.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/checkpoint/io/faults.h"
#include "tests/checkpoint/io/staged_job.h"
#include "tests/checkpoint/io/temp_directory.h"

namespace reshard {
namespace {

using testing::Call;
using testing::Content;
using testing::ContentAt;
using testing::ContentOf;
using testing::Fault;
using testing::FaultySystem;
using testing::Fill;
using testing::kNew;
using testing::kOld;
using testing::NamesIn;
using testing::PutContent;
using testing::RunJob;
using testing::TempDirectory;
using Names = std::vector<std::string>;

const Content kNothing = {{"", "nothing"}};

std::unique_ptr<io::StagedDirectory> MustBegin(const std::string& destination, const io::StageOptions& options) {
  auto staged = io::StagedDirectory::Begin(destination, "job1", options);
  INFO(staged.status());
  REQUIRE(staged.ok());
  return *std::move(staged);
}

absl::StatusCode CodeOfBegin(const std::string& destination, const io::StageOptions& options) {
  return io::StagedDirectory::Begin(destination, "job1", options).status().code();
}

TEST_CASE("a staged directory is nothing until it is complete, and nothing is left beside it") {
  TempDirectory directory;
  {
    auto staged = MustBegin(directory / "dst", {});
    CHECK_FALSE(staged->found_stale_staging());
    CHECK_FALSE(staged->was_committed());
    REQUIRE(Fill(*staged, kNew).ok());
    CHECK(NamesIn(directory.path()) == Names{".dst.reshard-job1"});
    CHECK(staged->stage() == directory / ".dst.reshard-job1");
    REQUIRE(staged->Commit().ok());
    CHECK(staged->was_committed());
    CHECK(staged->Commit().ok());
  }
  CHECK(ContentAt(directory / "dst") == kNew);
  CHECK(NamesIn(directory.path()) == Names{"dst"});
}

TEST_CASE("what is at the destination is replaced only when asked for, and only a directory") {
  TempDirectory directory;
  const std::string destination = directory / "dst";
  SECTION("a directory") {
    PutContent(destination, kOld);
    CHECK(RunJob(destination, kNew, {}).code() == absl::StatusCode::kAlreadyExists);
    CHECK(RunJob(destination, kNew, {.resume = true}).code() == absl::StatusCode::kAlreadyExists);
    CHECK(ContentAt(destination) == kOld);
    CHECK(NamesIn(directory.path()) == Names{"dst"});
    CHECK(RunJob(destination, kNew, {.replace = true}).ok());
    CHECK(ContentAt(destination) == kNew);
  }
  SECTION("a file") {
    PutContent(directory.path(), {{"dst", "a file"}});
    CHECK(RunJob(destination, kNew, {}).code() == absl::StatusCode::kAlreadyExists);
    CHECK(RunJob(destination, kNew, {.replace = true}).code() == absl::StatusCode::kFailedPrecondition);
    CHECK(ContentAt(directory.path()) == Content{{"dst", "a file"}});
  }
  SECTION("a symbolic link to a directory") {
    PutContent(directory / "elsewhere", kOld);
    std::filesystem::create_symlink("elsewhere", destination);
    CHECK(RunJob(destination, kNew, {}).code() == absl::StatusCode::kAlreadyExists);
    CHECK(RunJob(destination + "/", kNew, {.replace = true}).code() == absl::StatusCode::kFailedPrecondition);
    CHECK(ContentAt(destination) == Content{{"", "link"}});
    CHECK(ContentAt(directory / "elsewhere") == kOld);
  }
  CHECK_FALSE(std::filesystem::exists(directory / ".dst.reshard-job1"));
}

TEST_CASE("destinations are spelled in many ways") {
  TempDirectory directory;
  PutContent(directory / "real", {});
  std::filesystem::create_directory(directory / "real");
  std::filesystem::create_symlink("real", directory / "link");
  for (const char* spelled : {"/real/dst", "/real/dst/", "/real/dst//", "/real/dst/.", "/real/dst/.//./", "/real//dst",
                              "/real/./dst", "/link/dst", "/real/../link/dst/"}) {
    INFO(spelled);
    std::filesystem::remove_all(directory / "real/dst");
    CHECK(RunJob(directory.path() + spelled, kNew, {}).ok());
    CHECK(ContentAt(directory / "real/dst") == kNew);
    CHECK(NamesIn(directory / "real") == Names{"dst"});
  }
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory / "real");
  for (const char* relative : {"relative", "./relative2/", "../link/relative3"}) CHECK(RunJob(relative, kNew, {}).ok());
  std::filesystem::current_path(before);
  CHECK(NamesIn(directory / "real") == Names{"dst", "relative", "relative2", "relative3"});

  for (const char* bad : {"", "/", "//", ".", "./", "..", "a/..", "a/../."}) {
    INFO(bad);
    CHECK(CodeOfBegin(bad, {}) == absl::StatusCode::kInvalidArgument);
  }
  CHECK(CodeOfBegin(std::string("a\0b", 3), {}) == absl::StatusCode::kInvalidArgument);
  CHECK(CodeOfBegin(directory / "absent/dst", {}) == absl::StatusCode::kNotFound);
  for (const std::string& job : {std::string(), std::string("a/b"), std::string("a.b"), std::string(65, 'a')}) {
    CHECK(io::StagedDirectory::Begin(directory / "dst", job, {}).status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(CodeOfBegin(directory / "dst", {.worker = -1}) == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("stale staging directories are kept by a job that resumes and removed by one that does not") {
  TempDirectory directory;
  const std::string destination = directory / "dst";
  REQUIRE(Fill(*MustBegin(destination, {}), kNew).ok());
  {
    auto staged = MustBegin(destination, {.resume = true});
    CHECK(staged->found_stale_staging());
    CHECK(ContentAt(staged->data()) == kNew);
  }
  {
    auto staged = MustBegin(destination, {});
    CHECK_FALSE(staged->found_stale_staging());
    CHECK(ContentAt(staged->data()).empty());
    REQUIRE(Fill(*staged, kNew).ok());
    CHECK(staged->Abandon().ok());
    CHECK(NamesIn(directory.path()).empty());
    CHECK(staged->Abandon().ok());
    CHECK(staged->Commit().code() == absl::StatusCode::kFailedPrecondition);
  }
  CHECK(ContentAt(destination) == kNothing);
}

TEST_CASE("a filesystem that cannot exchange names is refused before any work") {
  TempDirectory directory;
  PutContent(directory / "dst", kOld);
  for (const int error : {EINVAL, ENOSYS, EOPNOTSUPP}) {
    FaultySystem system({.kind = Fault::kFails, .error = error, .calls = {Call::kRenameExchange}, .onwards = true});
    io::ScopedSystem scoped(&system);
    const absl::Status begun = io::StagedDirectory::Begin(directory / "dst", "job1", {.replace = true}).status();
    CHECK(begun.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(begun.message().find("exchange") != absl::string_view::npos);
    CHECK(NamesIn(directory.path()) == Names{"dst"});
    CHECK(ContentAt(directory / "dst") == kOld);
    CHECK(system.open() == 0);
    // Where nothing is there it is not needed.
    CHECK(RunJob(directory / "other", kNew, {.replace = true}).ok());
    std::filesystem::remove_all(directory / "other");
  }
}

TEST_CASE("a filesystem that only renames will do where nothing is replaced") {
  TempDirectory directory;
  FaultySystem system({.kind = Fault::kFails, .error = EINVAL, .calls = {Call::kRenameNoReplace}, .onwards = true});
  io::ScopedSystem scoped(&system);
  CHECK(RunJob(directory / "dst", kNew, {}).ok());
  CHECK(system.happened());
  CHECK(ContentAt(directory / "dst") == kNew);
}

TEST_CASE("a rename that happened but is reported as failed has happened") {
  for (const bool replace : {false, true}) {
    TempDirectory directory;
    if (replace) PutContent(directory / "dst", kOld);
    // The first exchange is the trial.
    FaultySystem system({.kind = Fault::kDoneButFails,
                         .at = replace ? 1 : 0,
                         .error = ENOENT,
                         .calls = {Call::kRenameExchange, Call::kRenameNoReplace}});
    io::ScopedSystem scoped(&system);
    CHECK(RunJob(directory / "dst", kNew, {.replace = replace}).ok());
    CHECK(system.happened());
    CHECK(ContentAt(directory / "dst") == kNew);
    CHECK(NamesIn(directory.path()) == Names{"dst"});
  }
}

TEST_CASE("what appears at the destination while the job works is not lost") {
  TempDirectory directory;
  const std::string destination = directory / "dst";
  for (const bool replace : {false, true}) {
    auto staged = MustBegin(destination, {.replace = replace});
    REQUIRE(Fill(*staged, kNew).ok());
    PutContent(destination, kOld);
    if (replace) {
      CHECK(staged->Commit().ok());
      CHECK(ContentAt(destination) == kNew);
    } else {
      CHECK(staged->Commit().code() == absl::StatusCode::kAlreadyExists);
      CHECK_FALSE(staged->was_committed());
      CHECK(ContentAt(destination) == kOld);
      CHECK(staged->Abandon().ok());
      CHECK(ContentAt(destination) == kOld);
      std::filesystem::remove_all(destination);
    }
  }
}

TEST_CASE("a destination that disappears while the job works is made all the same") {
  TempDirectory directory;
  PutContent(directory / "dst", kOld);
  auto staged = MustBegin(directory / "dst", {.replace = true});
  REQUIRE(Fill(*staged, kNew).ok());
  std::filesystem::remove_all(directory / "dst");
  CHECK(staged->Commit().ok());
  CHECK(ContentAt(directory / "dst") == kNew);
  CHECK(NamesIn(directory.path()) == Names{"dst"});
}

// Cut off after step 5: the stage is still there.
void RunUntilRenamed(const std::string& destination, bool replace) {
  FaultySystem system({.kind = Fault::kCrash, .calls = {Call::kRename}});
  io::ScopedSystem scoped(&system);
  CHECK_FALSE(RunJob(destination, kNew, {.replace = replace}).ok());
  REQUIRE(ContentAt(destination) == kNew);
}

TEST_CASE("a job cut off after the rename knows that it is complete") {
  for (const bool replace : {false, true}) {
    TempDirectory directory;
    if (replace) PutContent(directory / "dst", kOld);
    RunUntilRenamed(directory / "dst", replace);
    CHECK(NamesIn(directory.path()) == Names{".dst.reshard-job1", "dst"});
    CHECK(CodeOfBegin(directory / "dst", {}) == absl::StatusCode::kAlreadyExists);
    auto staged = MustBegin(directory / "dst", {.replace = replace, .resume = true});
    CHECK(staged->was_committed());
    CHECK(staged->Commit().ok());
    CHECK(ContentAt(directory / "dst") == kNew);
    CHECK(NamesIn(directory.path()) == Names{"dst"});
  }
}

TEST_CASE("another directory that was put in the place of a complete one is not taken for it") {
  TempDirectory directory;
  const std::string destination = directory / "dst";
  PutContent(destination, kOld);
  RunUntilRenamed(destination, true);
  // Made at once, so that it may well get the inode that has just become free.
  std::filesystem::remove_all(destination);
  PutContent(destination, ContentOf("somebody"));
  CHECK(CodeOfBegin(destination, {.resume = true}) == absl::StatusCode::kAlreadyExists);
  {
    auto staged = MustBegin(destination, {.replace = true, .resume = true});
    CHECK_FALSE(staged->was_committed());
    CHECK_FALSE(staged->found_stale_staging());
    CHECK(ContentAt(staged->data()).empty());
  }
  CHECK(ContentAt(destination) == ContentOf("somebody"));
  CHECK(RunJob(destination, kNew, {.replace = true, .resume = true}).ok());
  CHECK(ContentAt(destination) == kNew);
  CHECK(NamesIn(directory.path()) == Names{"dst"});
}

}  // namespace
}  // namespace reshard
