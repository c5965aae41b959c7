// Workers that wait for each other. Times are long enough for a machine that is busy with other things.
#include "checkpoint/convert/worker_group.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "checkpoint/io/files.h"
#include "tests/catch.h"
#include "tests/checkpoint/io/temp_directory.h"

namespace reshard {
namespace {

using testing::TempDirectory;

std::unique_ptr<io::StagedDirectory> Begin(const std::string& destination, int64_t worker, const std::string& terms) {
  auto stage = io::StagedDirectory::Begin(destination, "job1", {.resume = true, .worker = worker, .terms = terms});
  INFO(stage.status());
  REQUIRE(stage.ok());
  return *std::move(stage);
}

TEST_CASE("a worker that gets on is waited for, one that does not is not") {
  TempDirectory directory;
  const std::string destination = directory / "dst";
  const auto slow_stage = Begin(destination, 0, "terms"), stage = Begin(destination, 1, "terms");
  convert::WorkerGroup slow(*slow_stage, "terms", 0, 2, absl::Seconds(2)),
      waiting(*stage, "terms", 1, 2, absl::Seconds(2));
  REQUIRE(waiting.MarkDone().ok());
  const absl::Time begin = absl::Now();
  std::thread beating([&] {
    while (absl::Now() - begin < absl::Seconds(4)) {
      slow.Heartbeat();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  const auto lock = waiting.WaitForAll(nullptr);
  const absl::Duration waited = absl::Now() - begin;
  beating.join();
  CHECK(lock.status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(std::string(lock.status().message()).find("worker 0 of 2") != std::string::npos);
  CHECK(waited > absl::Seconds(5));
}

TEST_CASE("one worker finishes, when all are done under the same terms") {
  TempDirectory directory;
  const std::string destination = directory / "dst";
  {
    const auto before = Begin(destination, 0, "other terms");
    REQUIRE(convert::WorkerGroup(*before, "other terms", 0, 2, absl::Seconds(1)).MarkDone().ok());
  }
  const auto stage0 = Begin(destination, 0, "terms"), stage1 = Begin(destination, 1, "terms");
  convert::WorkerGroup group0(*stage0, "terms", 0, 2, absl::Milliseconds(300)),
      group1(*stage1, "terms", 1, 2, absl::Seconds(60));
  CHECK_FALSE(*group0.IsDone(0));
  REQUIRE(group0.MarkDone().ok());
  CHECK(*group0.IsDone(0));
  CHECK(*group1.IsDone(0));
  CHECK(group0.WaitForAll(nullptr).status().code() == absl::StatusCode::kDeadlineExceeded);
  REQUIRE(group1.MarkDone().ok());
  auto lock = group0.WaitForAll(nullptr);
  REQUIRE(lock.ok());
  REQUIRE(*lock != nullptr);

  // The other one waits for as long as the first is at it, and finishes itself when that dies.
  std::atomic<bool> returned = false;
  bool got_lock = false;
  std::thread other([&] {
    const auto second = group1.WaitForAll(nullptr);
    got_lock = second.ok() && *second != nullptr;
    returned = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK_FALSE(returned);
  *lock = nullptr;
  other.join();
  CHECK(got_lock);
  CHECK(stage0->Commit().ok());
  const auto late = group1.WaitForAll(nullptr);
  REQUIRE(late.ok());
  CHECK(*late == nullptr);
  CHECK(stage1->Commit().ok());
}

TEST_CASE("other terms are refused while others live") {
  TempDirectory directory;
  const std::string destination = directory / "dst";
  const auto begin = [&](int64_t worker, const std::string& terms) {
    return io::StagedDirectory::Begin(destination, "job1", {.resume = true, .worker = worker, .terms = terms});
  };
  auto first = begin(0, "2 workers");
  REQUIRE(first.ok());
  CHECK(begin(1, "2 workers").ok());
  const absl::Status refused = begin(1, "3 workers").status();
  CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(std::string(refused.message()).find("2 workers") != std::string::npos);
  *first = nullptr;
  auto changed = begin(1, "3 workers");
  REQUIRE(changed.ok());
  CHECK((*changed)->found_stale_staging());
  CHECK(begin(0, "2 workers").status().code() == absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace reshard
