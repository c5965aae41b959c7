// A small job in which each call fails, or is the last one.
#include <sys/stat.h>

#include <random>
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
using testing::kNew;
using testing::kOld;
using testing::NamesIn;
using testing::PutContent;
using testing::RunJob;
using testing::TempDirectory;
using Names = std::vector<std::string>;

const Content kNothing = {{"", "nothing"}};

// A place for the job, with something at the destination or without.
class JobDirectory {
 public:
  explicit JobDirectory(bool has_old) : has_old_(has_old) {
    if (has_old) PutContent(destination(), kOld);
  }
  std::string destination() const { return directory_ / "dst"; }
  io::StageOptions options(bool resume) const { return {.replace = has_old_, .resume = resume}; }

  // Runs the job, looking at the destination after every single call.
  absl::Status Run(FaultySystem* system, bool resume) {
    int64_t wrong = 0;
    system->AfterEachCall([&](Call call) {
      // The renames are where it may change; elsewhere it is enough that what was there is there.
      const bool renamed = call == Call::kRename || call == Call::kRenameNoReplace || call == Call::kRenameExchange;
      struct stat facts;
      if (renamed ? !IsWhole() : has_old_ && ::lstat(destination().c_str(), &facts) != 0) ++wrong;
    });
    absl::Status ran;
    {
      io::ScopedSystem scoped(system);
      ran = RunJob(destination(), kNew, options(resume));
    }
    CHECK(wrong == 0);
    CHECK(system->open() == 0);
    CHECK(IsWhole());
    return ran;
  }

  bool IsNew() const { return ContentAt(destination()) == kNew; }
  bool IsWhole() const { return IsNew() || ContentAt(destination()) == (has_old_ ? kOld : kNothing); }
  bool IsClean() const { return NamesIn(directory_.path()) == Names{"dst"}; }

 private:
  TempDirectory directory_;
  bool has_old_;
};

// Runs `check` with the fault at the first, the second... call until it has no turn.
template <typename Check>
void AtEveryCall(Fault fault, Check check) {
  for (bool happened = true; happened; ++fault.at) {
    INFO("at call " << fault.at);
    FaultySystem system(fault);
    check(&system);
    happened = system.happened();
  }
  CHECK(fault.at > 20);
}

TEST_CASE("interruptions and short counts at any call do not show") {
  for (const bool has_old : {false, true}) {
    for (const Fault& fault : {Fault{.kind = Fault::kFails, .error = EINTR}, Fault{.kind = Fault::kOneByte},
                               Fault{.kind = Fault::kHalf}, Fault{.kind = Fault::kOneByte, .onwards = true}}) {
      INFO("kind " << fault.kind << ", something there: " << has_old);
      AtEveryCall(fault, [&](FaultySystem* system) {
        JobDirectory place(has_old);
        const absl::Status ran = place.Run(system, false);
        INFO(ran);
        CHECK(ran.ok());
        CHECK(place.IsNew());
        CHECK(place.IsClean());
      });
    }
  }
}

TEST_CASE("after an error at any call the job can be resumed") {
  for (const bool has_old : {false, true}) {
    for (const int error : {EIO, ENOSPC, EROFS}) {
      for (const bool onwards : {false, true}) {
        INFO("error " << error << ", onwards: " << onwards << ", something there: " << has_old);
        const Fault fault = {.kind = Fault::kFails, .error = error, .onwards = onwards};
        AtEveryCall(fault, [&](FaultySystem* system) {
          JobDirectory place(has_old);
          const absl::Status ran = place.Run(system, false);
          INFO(ran);
          if (ran.ok()) CHECK((place.IsNew() && place.IsClean()));
          FaultySystem well;
          const absl::Status resumed = place.Run(&well, true);
          INFO(resumed);
          // A job that had ended well, or but for its last sync, has left nothing by which it could be known.
          if (resumed.code() != absl::StatusCode::kAlreadyExists) CHECK(resumed.ok());
          CHECK(place.IsNew());
          CHECK(place.IsClean());
        });
      }
    }
  }
}

TEST_CASE("killed at any call, the job can be resumed") {
  for (const bool has_old : {false, true}) {
    INFO("something there: " << has_old);
    AtEveryCall({.kind = Fault::kCrash}, [&](FaultySystem* system) {
      JobDirectory place(has_old);
      place.Run(system, false).IgnoreError();
      const bool left = !place.IsClean();
      FaultySystem well;
      const absl::Status resumed = place.Run(&well, true);
      INFO(resumed);
      CHECK((resumed.ok() || (!left && !has_old)));
      CHECK(place.IsNew());
      CHECK(place.IsClean());
    });
  }
}

TEST_CASE("killed at any call, the job can be done anew") {
  for (const bool has_old : {false, true}) {
    INFO("something there: " << has_old);
    AtEveryCall({.kind = Fault::kCrash}, [&](FaultySystem* system) {
      JobDirectory place(has_old);
      place.Run(system, false).IgnoreError();
      const bool complete = place.IsNew();
      FaultySystem well;
      const absl::Status anew = place.Run(&well, false);
      INFO(anew);
      CHECK(place.IsNew());
      if (complete && !has_old) {
        CHECK(anew.code() == absl::StatusCode::kAlreadyExists);
      } else {
        CHECK(anew.ok());
        CHECK(place.IsClean());
      }
    });
  }
}

TEST_CASE("killed at any call, and those that resume killed again and again") {
  std::mt19937_64 random(testing::Seed());
  for (int round = 0; round < 300; ++round) {
    JobDirectory place(random() % 2 == 0);
    for (int kills = 0; kills < 4; ++kills) {
      FaultySystem system({.kind = Fault::kCrash, .at = static_cast<int64_t>(random() % 130)});
      place.Run(&system, random() % 4 != 0).IgnoreError();
    }
    const bool left = !place.IsClean();
    FaultySystem well;
    const absl::Status resumed = place.Run(&well, true);
    INFO("round " << round << ": " << resumed);
    CHECK((resumed.ok() || (!left && resumed.code() == absl::StatusCode::kAlreadyExists)));
    CHECK(place.IsNew());
    CHECK(place.IsClean());
  }
}

}  // namespace
}  // namespace reshard
