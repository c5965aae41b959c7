// What loads and saves tell of how far they are, and what an error of whom they tell ends.
#include "reshard/checkpoint/progress.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

#include "checkpoint/io/system.h"
#include "checkpoint/live/progress.h"
#include "reshard/live/load.h"
#include "reshard/live/save.h"
#include "reshard/runtime/local_world.h"
#include "tests/catch.h"
#include "tests/checkpoint/io/temp_directory.h"
#include "tests/checkpoint/live/tensors.h"
#include "tests/layouts.h"

namespace reshard::testing {
namespace {

constexpr int64_t kWorld = 4;

// What one rank was told; with `failing`, the call of that number has an error.
struct Told {
  std::vector<ConvertProgress> calls;
  std::thread::id thread;
  int64_t failing = -1;

  TellProgress Tell() {
    thread = std::this_thread::get_id();
    return [this](const ConvertProgress& progress) -> absl::Status {
      if (std::this_thread::get_id() != thread) return absl::InternalError("told on another thread");
      calls.push_back(progress);
      const bool fails = failing == static_cast<int64_t>(calls.size()) - 1;
      return fails ? absl::CancelledError("enough") : absl::OkStatus();
    };
  }
  void Check(int64_t total) const {
    REQUIRE(calls.size() >= 2);
    CHECK(calls.front().done == 0);
    CHECK(calls.back().done == total);
    for (size_t i = 0; i < calls.size(); ++i) {
      CHECK(calls[i].total == total);
      CHECK(calls[i].done >= calls[i == 0 ? 0 : i - 1].done);
    }
  }
};

// Reads and writes that wait while the gate is closed, but for as many as are let through.
class GatedSystem : public io::System {
 public:
  ssize_t PRead(int fd, void* data, size_t bytes, off_t at) override {
    Pass();
    return io::System::PRead(fd, data, bytes, at);
  }
  ssize_t PWrite(int fd, const void* data, size_t bytes, off_t at) override {
    Pass();
    return io::System::PWrite(fd, data, bytes, at);
  }
  void CloseGate(int64_t but_for) { Set(but_for); }
  void OpenGate() { Set(-1); }
  // Somebody has waited in vain.
  bool stuck() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return stuck_;
  }

 private:
  void Set(int64_t left) {
    const std::lock_guard<std::mutex> lock(mutex_);
    left_ = left;
    changed_.notify_all();
  }
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    stuck_ |= !changed_.wait_for(lock, std::chrono::seconds(60), [this] { return stuck_ || left_ != 0; });
    if (left_ > 0) --left_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t left_ = -1;  // that are let through; -1: all
  bool stuck_ = false;
};

// Rows of a tensor per rank, or all of it on each.
struct State {
  std::vector<float> memory = std::vector<float>(64 * 32, 0.5F);
  std::vector<SaveEntry> saves;
  std::vector<LoadEntry> loads;

  explicit State(const std::string& layout) {
    const Layout parsed = LayoutOf(layout, "{X:4}");
    const std::vector<int64_t> shape = parsed.LocalShape(0);
    SaveEntry save;
    save.name = "w";
    save.layout = parsed;
    save.from = DenseView(static_cast<const void*>(memory.data()), DType::kF32, shape);
    saves.push_back(save);
    loads.push_back({"w", parsed, DenseView(static_cast<void*>(memory.data()), DType::kF32, shape)});
  }
};

std::vector<absl::Status> OnRanks(const std::function<absl::Status(Communicator&, size_t)>& body) {
  LocalWorld world(kWorld);
  return world.RunEach([&](Communicator& ranks) { return body(ranks, static_cast<size_t>(ranks.rank())); });
}

void CheckAllOk(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) REQUIRE(status.ToString() == "OK");
}

// The culprit has the error itself, the others one that names it.
void CheckEnded(const std::vector<absl::Status>& statuses, size_t culprit) {
  for (size_t rank = 0; rank < kWorld; ++rank) {
    if (rank == culprit) {
      CHECK(statuses[rank].ToString() == absl::CancelledError("enough").ToString());
    } else {
      CHECK_THAT(std::string(statuses[rank].message()), Catch::Contains("rank " + std::to_string(culprit)));
    }
  }
}

std::vector<absl::Status> SaveOn(const std::string& path, std::vector<Told>& told, std::vector<SaveSummary>& did,
                                 bool overwrite) {
  return OnRanks([&](Communicator& ranks, size_t rank) -> absl::Status {
    State state("[<X>64, 32]");
    SaveOptions options;
    options.overwrite = overwrite;
    options.progress = told[rank].Tell();
    const absl::StatusOr<SaveSummary> saved = Save(path, state.saves, {}, ranks, options);
    if (saved.ok()) did[rank] = *saved;
    return saved.status();
  });
}

TEST_CASE("loads and saves tell of all their bytes, in order, on the thread that calls them") {
  const TempDirectory directory;
  const std::string path = directory / "saved";
  std::vector<Told> told(kWorld);
  std::vector<SaveSummary> saved(kWorld);
  CheckAllOk(SaveOn(path, told, saved, false));
  for (size_t rank = 0; rank < kWorld; ++rank) told[rank].Check(saved[rank].written_bytes);
  for (const char* const layout : {"[64, 32]", "[<X>64, 32]", "[64, <X>32]"}) {
    for (const ReadMode read : {ReadMode::kOnce, ReadMode::kOwn}) {
      std::vector<Told> heard(kWorld);
      std::vector<LoadSummary> loaded(kWorld);
      const std::vector<absl::Status> done = OnRanks([&](Communicator& ranks, size_t rank) -> absl::Status {
        State state(layout);
        LoadOptions options;
        options.read = read;
        options.progress = heard[rank].Tell();
        const absl::StatusOr<LoadSummary> summary = Load(path, state.loads, {}, ranks, options);
        if (summary.ok()) loaded[rank] = *summary;
        return summary.status();
      });
      CheckAllOk(done);
      for (size_t rank = 0; rank < kWorld; ++rank) heard[rank].Check(loaded[rank].bytes);
    }
  }
}

TEST_CASE("an error of whom one rank tells ends a load or save on all, and leaves what was there") {
  const TempDirectory directory;
  const std::string path = directory / "saved";
  std::vector<SaveSummary> saved(kWorld);
  {
    std::vector<Told> told(kWorld);
    CheckAllOk(SaveOn(path, told, saved, false));
  }
  for (size_t culprit = 0; culprit < kWorld; ++culprit) {
    for (const int64_t failing : {0, 1}) {
      INFO("rank " << culprit << ", call " << failing);
      std::vector<Told> told(kWorld);
      told[culprit].failing = failing;
      for (const std::string& to : {path, directory / "new"}) {
        for (Told& each : told) each.calls.clear();
        CheckEnded(SaveOn(to, told, saved, true), culprit);
      }
      CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 1);
      for (Told& each : told) each.calls.clear();
      const std::vector<absl::Status> loaded = OnRanks([&](Communicator& ranks, size_t rank) -> absl::Status {
        State state("[64, <X>32]");
        LoadOptions options;
        options.progress = told[rank].Tell();
        return Load(path, state.loads, {}, ranks, options).status();
      });
      CheckEnded(loaded, culprit);
    }
  }
}

TEST_CASE("a load and a save that take a while tell of parts of their bytes") {
  constexpr int64_t kTensors = 40;
  const TempDirectory directory;
  const std::string path = directory / "saved";
  const Layout alone = LayoutOf("[64, 32]", "{X:1}");
  std::deque<State> states;  // which stay where they are
  std::vector<SaveEntry> saves;
  std::vector<LoadEntry> loads;
  for (int64_t i = 0; i < kTensors; ++i) {
    const State& state = states.emplace_back("[64, 32]");
    saves.push_back(state.saves[0]);
    saves.back().name = "w" + std::to_string(i);
    saves.back().layout = alone;
    loads.push_back(state.loads[0]);
    loads.back().name = saves.back().name;
    loads.back().layout = alone;
  }
  GatedSystem system;
  const io::ScopedSystem scoped(&system);
  int64_t parts = 0;
  // Some of the reads or writes come after the beginning, all others after something was told.
  const TellProgress tell = [&](const ConvertProgress& progress) {
    if (progress.done == 0 && parts == 0) system.CloseGate(kTensors / 2);
    if (progress.done > 0) system.OpenGate();
    parts += progress.done > 0 && progress.done < progress.total ? 1 : 0;
    return absl::OkStatus();
  };
  for (const bool is_load : {false, true}) {
    LocalWorld world(1);
    parts = 0;
    const std::vector<absl::Status> done = world.RunEach([&](Communicator& ranks) {
      if (is_load) {
        LoadOptions options;
        options.progress = tell;
        return Load(path, loads, {}, ranks, options).status();
      }
      SaveOptions options;
      options.progress = tell;
      return Save(path, saves, {}, ranks, options).status();
    });
    system.OpenGate();
    INFO((is_load ? "load" : "save"));
    CheckAllOk(done);
    CHECK(parts > 0);
    CHECK_FALSE(system.stuck());
  }
}

TEST_CASE("an error of whom one rank tells while others read or write ends what all do") {
  const TempDirectory directory;
  const std::string path = directory / "saved";
  std::vector<SaveSummary> saved(kWorld);
  {
    std::vector<Told> told(kWorld);
    CheckAllOk(SaveOn(path, told, saved, false));
  }
  for (const size_t culprit : {size_t{0}, size_t{3}}) {
    GatedSystem system;
    const io::ScopedSystem scoped(&system);
    int64_t calls = 0;
    // Nobody reads or writes between the first call and the second one, which comes while they wait.
    const TellProgress tell = [&](const ConvertProgress& progress) -> absl::Status {
      if (calls++ == 0) {
        system.CloseGate(0);
        return absl::OkStatus();
      }
      system.OpenGate();
      CHECK(progress.done < progress.total);
      return absl::CancelledError("enough");
    };
    const auto tell_of = [&](size_t rank) { return rank == culprit ? tell : TellProgress(); };
    const std::vector<absl::Status> loaded = OnRanks([&](Communicator& ranks, size_t rank) {
      State state("[64, <X>32]");
      LoadOptions options;
      options.read = ReadMode::kOwn;
      options.progress = tell_of(rank);
      return Load(path, state.loads, {}, ranks, options).status();
    });
    CheckEnded(loaded, culprit);
    CHECK(calls == 2);
    calls = 0;
    const std::vector<absl::Status> ended = OnRanks([&](Communicator& ranks, size_t rank) {
      State state("[<X>64, 32]");
      SaveOptions options;
      options.progress = tell_of(rank);
      return Save(directory / "new", state.saves, {}, ranks, options).status();
    });
    CheckEnded(ended, culprit);
    CHECK(calls == 2);
    CHECK_FALSE(system.stuck());
    CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 1);
  }
}

TEST_CASE("what is told is in the measure of the work that is done, never more than all") {
  std::vector<int64_t> told;
  std::promise<void> is_told;
  const TellProgress tell = [&](const ConvertProgress& progress) {
    if (progress.done == progress.total / 2 && told.back() == 0) is_told.set_value();
    told.push_back(progress.done);
    return absl::OkStatus();
  };
  live::Progress progress(int64_t{1} << 62, 10, tell);
  REQUIRE(progress.Begin().ok());
  REQUIRE(progress
              .During([&] {
                progress.Add(5);
                is_told.get_future().wait_for(std::chrono::seconds(60));
                progress.Add(15);
                return absl::OkStatus();
              })
              .ok());
  REQUIRE(progress.End().ok());
  CHECK(told.front() == 0);
  CHECK(std::find(told.begin(), told.end(), int64_t{1} << 61) != told.end());
  CHECK(told.back() == int64_t{1} << 62);
  CHECK(std::is_sorted(told.begin(), told.end()));
}

TEST_CASE("work is asked to stop when telling had an error, whose error is that of telling") {
  int64_t calls = 0;
  const TellProgress tell = [&](const ConvertProgress&) -> absl::Status {
    return ++calls == 2 ? absl::CancelledError("enough") : absl::OkStatus();
  };
  live::Progress progress(100, 100, tell);
  REQUIRE(progress.Begin().ok());
  bool stopped = false;
  const absl::Status done = progress.During([&] {
    std::mutex mutex;
    std::unique_lock<std::mutex> lock(mutex);
    std::condition_variable_any never;
    never.wait_for(lock, progress.stop(), std::chrono::seconds(60), [] { return false; });
    stopped = progress.stop().stop_requested();
    return absl::InternalError("asked to stop");
  });
  CHECK(stopped);
  CHECK(done == absl::CancelledError("enough"));
}

TEST_CASE("progress as text") {
  CHECK(ToString(ConvertProgress{int64_t{3} << 20, int64_t{8} << 20, 6.0}) == "3 MiB of 8 MiB, 512 KiB/s, 10 s left");
  CHECK(ToString(ConvertProgress{0, 0, 0.0}) == "0 B of 0 B, 0 B/s, 0 s left");
}

}  // namespace
}  // namespace reshard::testing
