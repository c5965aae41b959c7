// A whole conversion in a process that is killed.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>

#include "tests/catch.h"
#include "tests/checkpoint/convert_place.h"
#include "tests/checkpoint/faults.h"

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
    const ScopedSystem scoped(&system);
    place.Run(resume, workers, worker).IgnoreError();
    _exit(0);
  }
  int ended = 0;
  REQUIRE(waitpid(child, &ended, 0) == child);
  return WIFSIGNALED(ended);
}

TEST_CASE("a conversion: killed after any call, it is gone on with") {
  const ConvertSource source;
  for (const ConvertCase& what :
       {ConvertCase{CheckpointFormat::kDcp, true, 1}, ConvertCase{CheckpointFormat::kSafetensors, false, 1}}) {
    const testing::Content expected = source.Expected(what.format);
    for (const int64_t workers : {1, 2}) {
      int64_t call = 0;
      for (bool killed = true; killed; ++call) {
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
    const testing::Content expected = source.Expected(what.format);
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
        const ScopedSystem scoped(&system);
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

}  // namespace
}  // namespace reshard
