// Several processes at one destination, and real deaths.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/checkpoint/io/staged_job.h"
#include "tests/checkpoint/io/temp_directory.h"

namespace reshard {
namespace {

using testing::Content;
using testing::ContentAt;
using testing::ContentOf;
using testing::Fill;
using testing::NamesIn;
using testing::PutContent;
using testing::RunJob;
using testing::TempDirectory;
using Names = std::vector<std::string>;

// A process that runs `body` and is killed.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : id_(fork()) {
    if (id_ == 0) {
      body();
      _exit(0);
    }
  }
  ~Child() { Kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void Kill() {
    if (id_ <= 0) return;
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
    id_ = 0;
  }

 private:
  pid_t id_;
};

absl::StatusCode CodeOfBegin(const std::string& destination, const io::StageOptions& options) {
  return io::StagedDirectory::Begin(destination, "job1", options).status().code();
}

TEST_CASE("a job is refused while a living process does it, and not after that has died") {
  for (const bool same_process : {true, false}) {
    TempDirectory directory;
    const std::string destination = directory / "dst";
    std::unique_ptr<io::StagedDirectory> here;
    std::unique_ptr<Child> child;
    if (same_process) {
      here = *io::StagedDirectory::Begin(destination, "job1", {});
    } else {
      int ends[2];
      REQUIRE(pipe(ends) == 0);
      child = std::make_unique<Child>([&] {
        const auto staged = io::StagedDirectory::Begin(destination, "job1", {});
        const char begun = staged.ok() ? 'y' : 'n';
        if (write(ends[1], &begun, 1) != 1) return;
        for (;;) pause();
      });
      char begun = 0;
      REQUIRE(read(ends[0], &begun, 1) == 1);
      CHECK(begun == 'y');
      close(ends[0]);
      close(ends[1]);
    }
    for (const bool resume : {false, true}) {
      CHECK(CodeOfBegin(destination, {.resume = resume}) == absl::StatusCode::kFailedPrecondition);
    }
    CHECK(CodeOfBegin(destination, {.worker = 1}) == absl::StatusCode::kFailedPrecondition);
    CHECK(CodeOfBegin(destination, {.resume = true, .worker = 1}) == absl::StatusCode::kOk);
    // Another job at the same destination is none of its business.
    CHECK(io::StagedDirectory::Begin(destination, "job2", {}).ok());
    here = nullptr;
    child = nullptr;
    CHECK(CodeOfBegin(destination, {.resume = true}) == absl::StatusCode::kOk);
    CHECK(RunJob(destination, ContentOf("new"), {}).ok());
    CHECK(ContentAt(destination) == ContentOf("new"));
  }
}

TEST_CASE("workers share a stage, and one commits for all") {
  TempDirectory directory;
  const std::string destination = directory / "dst";
  PutContent(destination, ContentOf("old"));
  std::vector<std::unique_ptr<io::StagedDirectory>> workers;
  for (int64_t worker = 0; worker < 3; ++worker) {
    auto staged = io::StagedDirectory::Begin(destination, "job1", {.replace = true, .resume = true, .worker = worker});
    REQUIRE(staged.ok());
    CHECK((*staged)->found_stale_staging() == (worker > 0));
    workers.push_back(*std::move(staged));
  }
  CHECK(workers[0]->Abandon().code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(Fill(*workers[1], ContentOf("new")).ok());
  for (const int64_t worker : {2, 0, 1}) {
    CHECK(workers[worker]->Commit().ok());
    CHECK(workers[worker]->was_committed());
    CHECK(ContentAt(destination) == ContentOf("new"));
    CHECK(NamesIn(directory.path()) == Names{"dst"});
  }
}

TEST_CASE("processes that begin, commit and abandon at once never break the destination") {
  TempDirectory directory;
  const std::string destination = directory / "dst";
  PutContent(destination, ContentOf("same"));
  std::vector<std::unique_ptr<Child>> children;
  for (uint64_t number = 0; number < 3; ++number) {
    children.push_back(std::make_unique<Child>([&, number] {
      std::mt19937_64 random(testing::Seed() + number);
      for (;;) {
        auto staged = io::StagedDirectory::Begin(
            destination, "job1", {.replace = true, .resume = true, .worker = static_cast<int64_t>(random() % 2)});
        if (!staged.ok()) continue;
        if ((*staged)->was_committed()) {
          (*staged)->Commit().IgnoreError();
        } else if (random() % 4 == 0) {
          (*staged)->Abandon().IgnoreError();
        } else if (Fill(**staged, ContentOf("same")).ok()) {
          (*staged)->Commit().IgnoreError();
        }
      }
    }));
  }
  int64_t broken = 0;
  for (int i = 0; i < 3000; ++i) {
    usleep(100);
    if (!std::filesystem::is_directory(std::filesystem::symlink_status(destination))) ++broken;
  }
  CHECK(broken == 0);
  children.clear();
  CHECK(RunJob(destination, ContentOf("new"), {.replace = true}).ok());
  CHECK(ContentAt(destination) == ContentOf("new"));
  CHECK(NamesIn(directory.path()) == Names{"dst"});
}

TEST_CASE("a killed process leaves one content or the other, and a job that can be resumed") {
  std::mt19937_64 random(testing::Seed());
  TempDirectory directory;
  const std::string destination = directory / "dst";
  Content now = ContentOf("0");
  PutContent(destination, now);
  for (int round = 1; round <= 150; ++round) {
    INFO("round " << round);
    const Content next = ContentOf(std::to_string(round));
    {
      Child child([&] { RunJob(destination, next, {.replace = true, .resume = random() % 2 == 0}).IgnoreError(); });
      usleep(static_cast<useconds_t>(random() % 8000));
    }
    const Content left = ContentAt(destination);
    CHECK((left == now || left == next));
    const absl::Status resumed = RunJob(destination, next, {.replace = true, .resume = true});
    INFO(resumed);
    CHECK(resumed.ok());
    CHECK(ContentAt(destination) == next);
    CHECK(NamesIn(directory.path()) == Names{"dst"});
    now = next;
  }
}

}  // namespace
}  // namespace reshard
