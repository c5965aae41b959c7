// What loads and saves tell of how far they are, and what an error of whom they tell ends.
#include "reshard/checkpoint/progress.h"

#include <filesystem>
#include <functional>
#include <iterator>
#include <thread>
#include <vector>

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

TEST_CASE("progress as text") {
  CHECK(ToString(ConvertProgress{int64_t{3} << 20, int64_t{8} << 20, 6.0}) == "3 MiB of 8 MiB, 512 KiB/s, 10 s left");
  CHECK(ToString(ConvertProgress{0, 0, 0.0}) == "0 B of 0 B, 0 B/s, 0 s left");
}

}  // namespace
}  // namespace reshard::testing
