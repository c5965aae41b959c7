// A whole conversion in a process that is killed.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <utility>

#include "tests/catch.h"
#include "tests/checkpoint/convert/convert_place.h"
#include "tests/checkpoint/io/faults.h"
#include "tests/sanitized.h"

namespace reshard {
namespace {

using testing::Call;
using testing::ConvertCase;
using testing::ConvertPlace;
using testing::ConvertSource;
using testing::FaultySystem;

// Runs worker `worker` of `workers` in a process of its own, which kills itself after the given call to the system.
// Whether that came.
bool KilledAfter(int64_t call, const ConvertPlace& place, bool resume, int64_t workers, int64_t worker) {
  const pid_t child = fork();
  if (child == 0) {
    FaultySystem system;
    system.AfterEachCall([&](Call) {
      if (system.calls() > call) kill(getpid(), SIGKILL);
    });
    const io::ScopedSystem scoped(&system);
    place.Run(resume, workers, worker).IgnoreError();
    _exit(0);
  }
  int ended = 0;
  REQUIRE(waitpid(child, &ended, 0) == child);
  return WIFSIGNALED(ended);
}

// One call in so many: a process that a sanitizer watches takes long to make.
constexpr int64_t kEvery = testing::kSanitized ? 7 : 1;

TEST_CASE("a conversion: killed after any call, it is gone on with") {
  const ConvertSource source;
  for (const ConvertCase& what :
       {ConvertCase{CheckpointFormat::kDcp, true, 1}, ConvertCase{CheckpointFormat::kSafetensors, false, 1},
        ConvertCase{CheckpointFormat::kOrbax, false, 1}}) {
    const testing::Content expected = source.Expected(what);
    for (const int64_t workers : {1, 2}) {
      int64_t call = 0;
      for (bool killed = true; killed; call += kEvery) {
        INFO("call " << call << ", format " << Name(what.format) << ", workers " << workers);
        const ConvertPlace place(source, expected, what);
        const int64_t worker = workers - 1;
        if (workers == 2) place.Run(false, 2, 0).IgnoreError();
        killed = KilledAfter(call, place, false, workers, worker);
        CHECK((place.IsComplete() || (killed && place.IsAsBefore())));
        // Killed again while it resumes, somewhere else.
        KilledAfter(call * 7 % 60, place, true, workers, worker);
        CHECK((place.IsComplete() || place.IsAsBefore()));
        const absl::StatusOr<ConvertSummary> resumed = place.Run(true, workers, worker);
        INFO(resumed.status());
        CHECK(resumed.ok());
        CHECK(place.IsComplete());
        CHECK(place.IsClean());
      }
      CHECK(call > 100);
    }
  }
  CHECK(source.IsUnchanged());
}

TEST_CASE("a conversion: a worker ends what another was killed in the middle of") {
  const ConvertSource source;
  for (const bool has_old : {false, true}) {
    const ConvertCase what = {CheckpointFormat::kDcp, has_old, 1};
    const testing::Content expected = source.Expected(what);
    int64_t killed = 0;
    for (int round = 0; round < 100 && killed < 3; ++round) {
      const ConvertPlace place(source, expected, what);
      const pid_t child = fork();
      if (child == 0) {
        FaultySystem system;
        int64_t renames = 0;
        system.AfterEachCall([&](Call call) {
          // The first exchange is the one that tries whether there are any.
          const bool renamed = call == Call::kRenameNoReplace || call == Call::kRenameExchange;
          if (renamed && ++renames > (has_old ? 1 : 0)) kill(getpid(), SIGKILL);
        });
        const io::ScopedSystem scoped(&system);
        place.Run(false, 2, 0, absl::Seconds(60)).IgnoreError();
        _exit(0);
      }
      const absl::StatusOr<ConvertSummary> summary = place.Run(false, 2, 1, absl::Seconds(60));
      INFO(summary.status());
      CHECK(summary.ok());
      int ended = 0;
      REQUIRE(waitpid(child, &ended, 0) == child);
      if (WIFSIGNALED(ended)) ++killed;
      CHECK(place.IsComplete());
      CHECK(place.IsClean());
    }
    CHECK(killed == 3);
  }
}

// A process that waits for a word before it does its part. Made before there are locks that it would inherit.
class Waiting {
 public:
  explicit Waiting(const std::function<bool()>& body) {
    REQUIRE(pipe(ends_) == 0);
    id_ = fork();
    if (id_ == 0) {
      char word = 0;
      close(ends_[1]);
      _exit(read(ends_[0], &word, 1) == 1 && body() ? 0 : 1);
    }
  }
  ~Waiting() {
    close(ends_[0]);
    close(ends_[1]);
    if (id_ > 0) Ended(true);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  // Says the word.
  void Start() {
    if (!std::exchange(started_, true)) REQUIRE(write(ends_[1], "x", 1) == 1);
  }
  // Waits for its end a moment: it may need a lock that this process has, or wait for what this one does.
  void GiveTime(int64_t milliseconds) {
    for (int64_t i = 0; i < milliseconds && !Ended(false); ++i) usleep(1000);
  }
  // Whether it came to a good end.
  bool Ended(bool wait) {
    if (id_ > 0 && waitpid(id_, &status_, wait ? 0 : WNOHANG) == id_) id_ = 0;
    return id_ == 0 && WIFEXITED(status_) && WEXITSTATUS(status_) == 0;
  }

 private:
  int ends_[2] = {};
  pid_t id_ = 0;
  int status_ = 0;
  bool started_ = false;
};

// Worker 0 makes its calls, and after the `call`-th of them worker 1 gets `milliseconds` to do all it has to do.
void WithOther(const ConvertPlace& place, int64_t call, bool has_started, int64_t milliseconds) {
  const absl::Duration stall_timeout = absl::Seconds(60);
  Waiting other([&] { return place.Run(false, 2, 1, stall_timeout).ok(); });
  if (has_started) other.Start();
  bool happened = false;
  FaultySystem system;
  system.AfterEachCall([&](Call) {
    if (system.calls() <= call || std::exchange(happened, true)) return;
    other.Start();
    other.GiveTime(milliseconds);
  });
  {
    const io::ScopedSystem scoped(&system);
    const absl::StatusOr<ConvertSummary> summary = place.Run(false, 2, 0, stall_timeout);
    INFO(summary.status());
    CHECK(summary.ok());
  }
  other.Start();
  CHECK(other.Ended(true));
  CHECK(place.IsComplete());
  CHECK(place.IsClean());
}

TEST_CASE("a conversion: all that another worker does may come after any call of this one") {
  const ConvertSource source;
  for (const bool has_old : {false, true}) {
    const ConvertCase what = {CheckpointFormat::kSafetensors, has_old, 1};
    const testing::Content expected = source.Expected(what);
    const auto in_vain = [](const ConvertPlace& place) {
      FaultySystem system;
      const io::ScopedSystem scoped(&system);
      const absl::Status ran = place.Run(false, 2, 0, absl::Nanoseconds(1)).status();
      CHECK(ran.code() == absl::StatusCode::kDeadlineExceeded);
      return system.calls();
    };
    // How many calls it takes until one waits.
    const ConvertPlace alone(source, expected, what);
    const int64_t calls = in_vain(alone), calls_again = in_vain(alone);
    CHECK(calls > 100);
    CHECK(calls_again > 30);
    for (int64_t call = 0; call < calls; call += 17) {
      INFO("both begin, the other one after call " << call << ", something there " << has_old);
      WithOther(ConvertPlace(source, expected, what), call, false, 5);
    }
    for (int64_t call = calls - 25; call < calls; ++call) {
      INFO("the other one waits, and ends it after call " << call << ", something there " << has_old);
      WithOther(ConvertPlace(source, expected, what), call, true, 50);
    }
    for (int64_t call = 0; call < calls_again; ++call) {
      INFO("done before, and the other one ends it after call " << call << ", something there " << has_old);
      const ConvertPlace place(source, expected, what);
      in_vain(place);
      WithOther(place, call, false, 50);
    }
  }
}

}  // namespace
}  // namespace reshard
