// What a filesystem can do, where it can all of it and where one call fails.
#include "reshard/checkpoint/filesystem.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "tests/catch.h"
#include "tests/checkpoint/io/faults.h"
#include "tests/checkpoint/io/staged_job.h"
#include "tests/checkpoint/io/temp_directory.h"

namespace reshard {
namespace {

using testing::Call;
using testing::Fault;
using testing::FaultySystem;
using testing::NamesIn;
using testing::TempDirectory;

FilesystemFeatures Without(Call call, int error, const std::string& directory) {
  FaultySystem system({.kind = Fault::kFails, .error = error, .calls = {call}, .onwards = true});
  const io::ScopedSystem scoped(&system);
  const absl::StatusOr<FilesystemFeatures> features = TryFilesystem(directory);
  CHECK(system.open() == 0);
  REQUIRE(features.ok());
  return *features;
}

TEST_CASE("filesystem: all that a conversion needs is there, and nothing stays") {
  const TempDirectory directory;
  const absl::StatusOr<FilesystemFeatures> features = TryFilesystem(directory.path());
  REQUIRE(features.ok());
  CHECK(features->writes.ok());
  CHECK(features->takes_space_ahead.ok());
  CHECK(features->renames_without_replacing.ok());
  CHECK(features->exchanges_names.ok());
  CHECK(features->locks.ok());
  CHECK(features->free_bytes > 0);
  CHECK(features->free_bytes <= features->bytes);
  CHECK(NamesIn(directory.path()).empty());
}

TEST_CASE("filesystem: what is missing is said, and the rest is tried all the same") {
  const TempDirectory directory;
  const FilesystemFeatures no_exchange = Without(Call::kRenameExchange, EINVAL, directory.path());
  CHECK(!no_exchange.exchanges_names.ok());
  CHECK(no_exchange.renames_without_replacing.ok());
  CHECK(no_exchange.locks.ok());
  const FilesystemFeatures no_lock = Without(Call::kFlock, ENOLCK, directory.path());
  CHECK(!no_lock.locks.ok());
  CHECK(no_lock.exchanges_names.ok());
  const FilesystemFeatures no_space = Without(Call::kFAllocate, EOPNOTSUPP, directory.path());
  CHECK(!no_space.takes_space_ahead.ok());
  CHECK(no_space.writes.ok());
  CHECK(!Without(Call::kRenameNoReplace, EINVAL, directory.path()).renames_without_replacing.ok());
  const FilesystemFeatures full = Without(Call::kPWrite, ENOSPC, directory.path());
  CHECK(absl::IsResourceExhausted(full.writes));
  CHECK(full.locks.ok());
  const FilesystemFeatures read_only = Without(Call::kMkDir, EROFS, directory.path());
  CHECK(!read_only.writes.ok());
  CHECK(read_only.locks == read_only.writes);
  CHECK(NamesIn(directory.path()).empty());
}

TEST_CASE("filesystem: whatever call fails, nothing stays open") {
  const TempDirectory directory;
  for (int64_t at = 0;; ++at) {
    FaultySystem system({.kind = Fault::kFails, .at = at, .error = EIO});
    {
      const io::ScopedSystem scoped(&system);
      TryFilesystem(directory.path()).IgnoreError();
    }
    CHECK(system.open() == 0);
    if (system.calls() <= at) break;
    std::filesystem::remove_all(directory.path());
    std::filesystem::create_directory(directory.path());
  }
}

TEST_CASE("filesystem: no directory") {
  const TempDirectory directory;
  CHECK(absl::IsNotFound(TryFilesystem(directory / "nothing").status()));
}

}  // namespace
}  // namespace reshard
