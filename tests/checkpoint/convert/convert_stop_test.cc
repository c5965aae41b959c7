// A conversion that is asked to stop, at every call of the system that it makes.
#include <stop_token>

#include "absl/status/status.h"
#include "reshard/checkpoint/verify.h"
#include "tests/catch.h"
#include "tests/checkpoint/convert/convert_place.h"
#include "tests/checkpoint/io/faults.h"

namespace reshard {
namespace {

using testing::ConvertCase;
using testing::ConvertPlace;
using testing::ConvertSource;
using testing::FaultySystem;

TEST_CASE("convert: asked to stop, it stops or is done; what it leaves can be gone on with") {
  const ConvertSource source;
  for (const ConvertCase& what : {ConvertCase{.format = CheckpointFormat::kDcp},
                                  ConvertCase{.format = CheckpointFormat::kSafetensors, .has_old = true}}) {
    const testing::Content expected = source.Expected(what);
    int stopped = 0, done = 0;
    for (int64_t at = 0; done < 3; at += 3) {
      ConvertPlace place(source, expected, what);
      std::stop_source stop;
      place.StopBy(stop.get_token());
      FaultySystem system;
      int64_t calls = 0;
      system.AfterEachCall([&](testing::Call) {
        if (calls++ == at) stop.request_stop();
      });
      absl::Status ran;
      {
        const io::ScopedSystem scoped(&system);
        ran = place.Run(false).status();
      }
      INFO(at << ": " << ran);
      CHECK(system.open() == 0);
      if (ran.ok()) {
        ++done;
        CHECK(place.IsComplete());
      } else {
        ++stopped;
        CHECK(absl::IsCancelled(ran));
        CHECK(place.IsAsBefore());
        place.StopBy({});
        CHECK(place.Run(true).ok());
      }
      CHECK(place.IsComplete());
      CHECK(place.IsClean());
    }
    CHECK(stopped > 10);
  }
}

TEST_CASE("verify: asked to stop before it began") {
  const ConvertSource source;
  std::stop_source stop;
  stop.request_stop();
  VerifyOptions options;
  options.stop = stop.get_token();
  CHECK(absl::IsCancelled(VerifyCheckpoints(source.path(), source.path(), options).status()));
}

}  // namespace
}  // namespace reshard
