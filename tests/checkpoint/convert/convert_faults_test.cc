// A whole conversion in which each call to the system fails, or is the last one.
#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>

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
using testing::Fault;
using testing::FaultySystem;

constexpr auto kDcp = CheckpointFormat::kDcp;
constexpr auto kSafetensors = CheckpointFormat::kSafetensors;
constexpr auto kOrbax = CheckpointFormat::kOrbax;

int OpenDescriptors() {
  int count = 0;
  DIR* const directory = ::opendir("/proc/self/fd");
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count;
}

// Calls that change something. What one that opens had opened would be lost if it failed after all.
const std::set<Call> kChanging = {Call::kPWrite,   Call::kFSync,    Call::kFTruncate,       Call::kFAllocate,
                                  Call::kMkDir,    Call::kRmDir,    Call::kUnlink,          Call::kRename,
                                  Call::kUnlinkAt, Call::kRenameAt, Call::kRenameNoReplace, Call::kRenameExchange,
                                  Call::kFlock,    Call::kClose,    Call::kCloseDir};

// What is there before the run with the fault.
enum class Begin { kFresh, kResumed, kLastWorker };

class Faults {
 public:
  explicit Faults(const ConvertCase& what) : what_(what), expected_(source_.Expected(what)) {}
  ~Faults() { CHECK(source_.IsUnchanged()); }

  // Runs with the fault at the first, the second... call until it has no turn, and then the rest without any.
  // `harmless`: the fault must not show at all. How many calls there were.
  int64_t AtEveryCall(Fault fault, Begin begin, bool harmless) {
    fault.at += times_++ % kEvery;
    for (bool happened = true; happened; fault.at += kEvery) {
      INFO("call " << fault.at << ", kind " << fault.kind << ", error " << fault.error << ", onwards " << fault.onwards
                   << ", begin " << static_cast<int>(begin) << ", format " << Name(what_.format) << ", something there "
                   << what_.has_old << ", threads " << what_.threads << ", recipe " << what_.has_recipe);
      happened = Once(fault, begin, harmless);
    }
    return fault.at;
  }

 private:
  // A sanitized build takes every seventh call, beginning with another one each time.
  static constexpr int64_t kEvery = testing::kSanitized ? 7 : 1;

  bool Once(const Fault& fault, Begin begin, bool harmless) {
    const ConvertPlace place(source_, expected_, what_);
    const int64_t workers = begin == Begin::kLastWorker ? 2 : 1;
    const int64_t worker = workers - 1;
    if (begin == Begin::kResumed) {
      FaultySystem cut({.kind = Fault::kCrash, .at = calls_ * 2 / 3});
      const io::ScopedSystem scoped(&cut);
      place.Run(false).IgnoreError();
    } else if (begin == Begin::kLastWorker) {
      FaultySystem well;
      const io::ScopedSystem scoped(&well);
      CHECK(place.Run(false, 2, 0).status().code() == absl::StatusCode::kDeadlineExceeded);
    }
    const int descriptors = OpenDescriptors();
    FaultySystem system(fault);
    absl::Status ran;
    {
      const io::ScopedSystem scoped(&system);
      ran = place.Run(begin == Begin::kResumed, workers, worker).status();
    }
    INFO(ran);
    CHECK(system.open() == 0);
    CHECK(OpenDescriptors() == descriptors);
    CHECK((place.IsAsBefore() || place.IsComplete()));
    if (harmless) CHECK(ran.ok());
    if (ran.ok()) {
      CHECK(place.IsComplete());
      CHECK(place.IsClean());
    } else if (fault.error == EIO) {
      CHECK(KindOf(ran) == CheckpointError::kSystem);
    }
    FaultySystem well;
    const io::ScopedSystem scoped(&well);
    const absl::StatusOr<ConvertSummary> resumed = place.Run(true, workers, worker);
    INFO(resumed.status());
    CHECK(resumed.ok());
    CHECK(well.open() == 0);
    CHECK(place.IsComplete());
    CHECK(place.IsClean());
    calls_ = std::max(calls_, system.calls());
    return system.happened();
  }

  const ConvertCase what_;
  const ConvertSource source_;
  const testing::Content expected_;
  int64_t times_ = 0;  // AtEveryCall
  int64_t calls_ = 0;
};

const ConvertCase kCases[] = {{kDcp, false, 1},        {kDcp, true, 1},    {kSafetensors, false, 1},
                              {kSafetensors, true, 2}, {kOrbax, false, 1}, {.format = kDcp, .has_recipe = true}};

TEST_CASE("a conversion: interruptions and short counts at any call do not show") {
  for (const ConvertCase& what : kCases) {
    if (what.has_recipe) continue;  // which reads and writes by the same calls
    Faults faults(what);
    for (const Fault& fault :
         {Fault{.kind = Fault::kFails, .error = EINTR}, Fault{.kind = Fault::kOneByte}, Fault{.kind = Fault::kHalf}}) {
      CHECK(faults.AtEveryCall(fault, Begin::kFresh, true) > 100);
      if (!what.has_old) faults.AtEveryCall(fault, Begin::kResumed, true);
    }
  }
}

TEST_CASE("a conversion: after an error at any call it is resumed") {
  for (const ConvertCase& what : kCases) {
    Faults faults(what);
    for (const Fault& fault :
         {Fault{.kind = Fault::kFails, .error = EIO}, Fault{.kind = Fault::kFails, .error = ENOSPC},
          Fault{.kind = Fault::kFails, .error = EIO, .onwards = true},
          Fault{.kind = Fault::kDoneButFails, .error = EIO, .calls = kChanging}}) {
      CHECK(faults.AtEveryCall(fault, Begin::kFresh, false) > 30);
      if (!what.has_old) faults.AtEveryCall(fault, Begin::kResumed, false);
    }
  }
}

TEST_CASE("a conversion: killed at any call it is resumed") {
  for (const ConvertCase& what : kCases) {
    Faults faults(what);
    CHECK(faults.AtEveryCall({.kind = Fault::kCrash}, Begin::kFresh, false) > 100);
    faults.AtEveryCall({.kind = Fault::kCrash}, Begin::kResumed, false);
  }
}

TEST_CASE("a conversion: an error, or death, at any call of the worker that finishes") {
  for (const ConvertCase& what : {kCases[1], kCases[2]}) {
    Faults faults(what);
    CHECK(faults.AtEveryCall({.kind = Fault::kFails, .error = EIO}, Begin::kLastWorker, false) > 100);
    faults.AtEveryCall({.kind = Fault::kCrash}, Begin::kLastWorker, false);
    faults.AtEveryCall({.kind = Fault::kFails, .error = EINTR}, Begin::kLastWorker, true);
  }
}

TEST_CASE("a conversion: what an interrupted run wrote is kept where it is still there") {
  for (const bool has_old : {false, true}) {
    for (const CheckpointFormat format : {kDcp, kSafetensors, kOrbax}) {
      const ConvertCase what = {format, has_old, 1};
      const ConvertSource source;
      const testing::Content expected = source.Expected({.format = format});
      for (const bool lost : {false, true}) {
        const ConvertPlace place(source, expected, what);
        {
          // At the rename that would put it in its place; one before tries whether names can be exchanged.
          FaultySystem cut({.kind = Fault::kCrash,
                            .at = has_old ? 1 : 0,
                            .calls = {Call::kRename, Call::kRenameNoReplace, Call::kRenameExchange}});
          const io::ScopedSystem scoped(&cut);
          CHECK_FALSE(place.Run(false).ok());
        }
        CHECK(place.IsAsBefore());
        int64_t damaged = 0;
        for (const auto& [name, path] : place.Staged()) {
          if (!lost || expected.count(name) == 0) continue;
          // As after a power failure: the length is there, the contents are not.
          const auto bytes = std::filesystem::file_size(path);
          std::filesystem::resize_file(path, 0);
          std::filesystem::resize_file(path, bytes);
          ++damaged;
        }
        const absl::StatusOr<ConvertSummary> resumed = place.Run(false);
        INFO(resumed.status());
        REQUIRE(resumed.ok());
        CHECK(place.IsComplete());
        CHECK(place.IsClean());
        if (lost) CHECK(damaged >= 2);
        CHECK(resumed->kept_bytes == (lost ? 0 : resumed->bytes));
      }
    }
  }
}

TEST_CASE("a conversion: an error, or death, at any call of a worker that waits in vain") {
  const ConvertSource source;
  const ConvertCase what = {kDcp, true, 1};
  const testing::Content expected = source.Expected(what);
  for (Fault fault : {Fault{.kind = Fault::kFails, .error = EIO}, Fault{.kind = Fault::kFails, .error = EINTR},
                      Fault{.kind = Fault::kCrash}}) {
    for (bool happened = true; happened; ++fault.at) {
      INFO("call " << fault.at << ", kind " << fault.kind << ", error " << fault.error);
      const ConvertPlace place(source, expected, what);
      FaultySystem system(fault);
      {
        const io::ScopedSystem scoped(&system);
        const absl::Status ran = place.Run(false, 2, 0).status();
        const bool in_vain = ran.code() == absl::StatusCode::kDeadlineExceeded;
        INFO(ran);
        CHECK(KindOf(ran) == (in_vain ? CheckpointError::kPeer : CheckpointError::kSystem));
        if (fault.error == EINTR || !system.happened()) CHECK(in_vain);
      }
      happened = system.happened();
      CHECK(system.open() == 0);
      CHECK(place.IsAsBefore());
      FaultySystem well;
      const io::ScopedSystem scoped(&well);
      const absl::StatusOr<ConvertSummary> other = place.Run(false, 2, 1);
      CHECK((other.ok() || other.status().code() == absl::StatusCode::kDeadlineExceeded));
      const absl::StatusOr<ConvertSummary> resumed = place.Run(true, 2, 0);
      INFO(resumed.status());
      CHECK(resumed.ok());
      CHECK(resumed->was_complete == other.ok());
      CHECK(place.IsComplete());
      CHECK(place.IsClean());
    }
    CHECK(fault.at > 100);
  }
}

}  // namespace
}  // namespace reshard
