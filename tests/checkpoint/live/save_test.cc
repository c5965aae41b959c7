// Saving over ranks that are threads: what is saved is what the ranks hold, and errors leave things as they were.
#include "reshard/live/save.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "reshard/checkpoint/verify.h"
#include "reshard/live/load.h"
#include "reshard/runtime/local_world.h"
#include "tests/catch.h"
#include "tests/checkpoint/io/temp_directory.h"
#include "tests/checkpoint/live/tensors.h"
#include "tests/checkpoint/stores/failing_shelf.h"
#include "tests/file_bytes.h"
#include "tests/layouts.h"

namespace reshard::testing {
namespace {

// What one rank passes: fragments filled by logical index, dense or every second element of a larger tensor.
struct RankState {
  std::vector<std::vector<char>> memory;
  std::vector<SaveEntry> entries;
};

RankState StateOf(Random& random, const std::vector<TestTensor>& tensors, const std::vector<SaveEntry>& common,
                  int64_t rank) {
  RankState state;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const Held held = HeldBy(ToString(common[t].layout.mesh()), ToString(common[t].layout), rank);
    const size_t step = random.Chance(30) ? 2 : 1;
    const auto element = static_cast<size_t>(SizeOf(tensors[t].dtype));
    std::vector<char> memory(held.numbers.size() * element * step, '\x77');
    for (size_t i = 0; i < held.numbers.size(); ++i) {
      ElementOf(tensors[t], held.numbers[i]).copy(&memory[i * element * step], element);
    }
    SaveEntry entry = common[t];
    if (!held.numbers.empty() || !held.shape.empty()) {
      entry.from = DenseView(static_cast<const void*>(memory.data()), tensors[t].dtype, held.shape);
      for (int64_t& stride : entry.from.strides) stride *= static_cast<int64_t>(step);
    }
    state.memory.push_back(std::move(memory));
    state.entries.push_back(std::move(entry));
  }
  return state;
}

SaveEntry EntryOf(const std::string& name, const std::string& mesh, const std::string& layout, DType dtype) {
  SaveEntry entry;
  entry.name = name;
  entry.layout = LayoutOf(layout, mesh);
  entry.dtype = dtype;
  return entry;
}

std::vector<SaveEntry> EntriesFor(Random& random, const std::vector<TestTensor>& tensors, int64_t world) {
  std::vector<SaveEntry> entries;
  for (const TestTensor& tensor : tensors) {
    const std::string mesh = random.MeshText(world);
    entries.push_back(EntryOf(tensor.name, mesh, random.LayoutText(mesh, tensor.shape), tensor.dtype));
  }
  return entries;
}

absl::Status SaveAll(Random& random, const std::string& path, const std::vector<TestTensor>& tensors,
                     const std::vector<SaveEntry>& entries, int64_t world, const SaveOptions& options) {
  std::vector<RankState> states;
  for (int64_t rank = 0; rank < world; ++rank) states.push_back(StateOf(random, tensors, entries, rank));
  const std::string bytes = "bytes of the last rank";
  SaveItem item{"item", {"a", int64_t{1}}, world - 1, static_cast<int64_t>(bytes.size()), bytes};
  LocalWorld ranks(world);
  return ranks.Run([&](Communicator& communicator) {
    const auto rank = static_cast<size_t>(communicator.rank());
    return Save(path, states[rank].entries, {&item, 1}, communicator, options).status();
  });
}

std::set<std::string> NamesIn(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

TEST_CASE("What ranks hold in any layout is what the checkpoint has") {
  const uint64_t seed = Seed();
  for (uint64_t run = 0; run < 60; ++run) {
    INFO("seed " << seed << ", run " << run);
    Random random(seed + run);
    const TempDirectory directory;
    const std::vector<TestTensor> tensors = random.Tensors();
    const int64_t world = random.Pick(1, 6);
    const std::string saved = directory / "saved";
    SaveOptions options;
    options.threads = static_cast<int>(random.Pick(0, 2));
    const absl::Status status = SaveAll(random, saved, tensors, EntriesFor(random, tensors, world), world, options);
    REQUIRE(status.ToString() == "OK");
    WriteSafetensors(directory / "whole.safetensors", tensors);
    const absl::StatusOr<VerifyReport> report = VerifyCheckpoints(directory / "whole.safetensors", saved);
    REQUIRE(report.status().ToString() == "OK");
    REQUIRE(report->differences.size() == 1);  // the byte item, which safetensors cannot have
    CHECK(report->differences[0].name == "item");
    CHECK(NamesIn(directory.path()) == std::set<std::string>{"saved", "whole.safetensors"});
    const absl::StatusOr<Catalog> catalog = ReadCatalog(saved);
    REQUIRE(catalog.ok());
    REQUIRE(catalog->PathOf("item") != nullptr);
    CHECK(*catalog->PathOf("item") == std::vector<Catalog::PathStep>{"a", int64_t{1}});
  }
}

// Nothing, the values of one of the seeds, or an end of the test.
std::string StateAt(const std::string& url, const TempDirectory& directory, const std::vector<std::string>& values) {
  for (const std::string& name : values) {
    const absl::StatusOr<VerifyReport> report = VerifyCheckpoints(directory / (name + ".safetensors"), url);
    if (!report.ok()) return "nothing";
    // Which has a byte item, too, as safetensors cannot.
    if (report->differences.size() == 1 && report->differences[0].name == "item") return name;
  }
  FAIL(url << " is none of them");
  return "";
}

TEST_CASE("A save into a store is what ranks hold") {
  const uint64_t seed = Seed();
  const auto shelf = std::make_shared<FailingShelf>();
  RegisterStore("shelf", shelf);
  for (uint64_t run = 0; run < 30; ++run) {
    INFO("seed " << seed << ", run " << run);
    Random random(seed + run);
    const TempDirectory directory;
    const std::vector<TestTensor> tensors = random.Tensors();
    const int64_t world = random.Pick(1, 6);
    const std::string url = absl::StrCat("shelf://a/", run);
    const absl::Status status = SaveAll(random, url, tensors, EntriesFor(random, tensors, world), world, {});
    REQUIRE(status.ToString() == "OK");
    WriteSafetensors(directory / "whole.safetensors", tensors);
    CHECK(StateAt(url, directory, {"whole"}) == "whole");
    // The same bytes as in a directory.
    Random again(seed + run);
    again.Tensors();
    again.Pick(1, 6);
    REQUIRE(SaveAll(again, directory / "saved", tensors, EntriesFor(again, tensors, world), world, {}).ok());
    for (const std::string& name : NamesIn(directory / "saved")) {
      if (name.ends_with(".distcp")) CHECK(shelf->Contents(url + "/" + name) == FileBytes(directory / "saved/" + name));
    }
    CHECK(shelf->NamesBelow(url) == NamesIn(directory / "saved"));
  }
  RegisterStore("shelf", nullptr);
}

TEST_CASE("A save into a store, whichever call fails: the old checkpoint, the new one, or none") {
  const auto shelf = std::make_shared<FailingShelf>();
  RegisterStore("shelf", shelf);
  const TempDirectory directory;
  const auto tensors = [](uint64_t seed) {
    return std::vector<TestTensor>{{"v", DType::kF32, {6}, seed}, {"w", DType::kF32, {16, 4}, seed + 1}};
  };
  WriteSafetensors(directory / "old.safetensors", tensors(10));
  WriteSafetensors(directory / "new.safetensors", tensors(20));
  const std::vector<SaveEntry> entries = {EntryOf("v", "{X:3}", "[6]", DType::kF32),
                                          EntryOf("w", "{X:3}", "[<X>16, 4]", DType::kF32)};
  const std::vector<SaveEntry> others = {EntryOf("v", "{X:2}", "[<X>6]", DType::kF32),
                                         EntryOf("w", "{X:2}", "[16, <X>4]", DType::kF32)};
  int64_t failed = 0, left = 0;
  for (const bool replaces : {false, true}) {
    for (const bool once : {false, true}) {
      for (int64_t at = 0;; ++at) {
        Random random(7);
        const std::string url = absl::StrCat("shelf://a/", replaces, once, "-", at);
        INFO(url);
        shelf->FailAt(kNever, false);
        SaveOptions options;
        if (replaces) REQUIRE(SaveAll(random, url, tensors(10), others, 2, options).ok());
        const std::set<std::string> before = shelf->NamesBelow(url);
        options.overwrite = replaces;
        shelf->FailAt(at, at % 2 == 0, once);
        const absl::Status status = SaveAll(random, url, tensors(20), entries, 3, options);
        const bool all = !shelf->failed();
        shelf->FailAt(kNever, false);
        INFO(status);
        // What lives no more gives no sign of life; without them nobody has to wait for one.
        for (const std::string& name : shelf->NamesBelow(url)) {
          if (absl::StrContains(name, "/beat-")) REQUIRE(shelf->Delete(url + "/" + name).ok());
        }
        const std::string state = StateAt(url, directory, {"old", "new"});
        CHECK((state == "new" || state == (replaces ? "old" : "nothing")));
        CHECK((!status.ok() || state == "new"));
        const std::set<std::string> after = shelf->NamesBelow(url);
        const bool is_left = std::any_of(after.begin(), after.end(),
                                         [](const std::string& name) { return absl::StartsWith(name, ".reshard-"); });
        if (!status.ok() && !is_left && state != "new") CHECK(after == before);
        if (once) left += is_left ? 1 : 0;
        // The next save, here of another mesh, finds nothing in its way, and leaves nothing of the one before.
        options.overwrite = replaces || state == "new";
        const absl::Status next = SaveAll(random, url, tensors(10), others, 2, options);
        CHECK(next.ToString() == "OK");
        CHECK(StateAt(url, directory, {"old", "new"}) == "old");
        CHECK(shelf->NamesBelow(url).size() == 4);
        if (all) break;
        ++failed;
      }
    }
  }
  CHECK(failed > 60);
  CHECK(left < failed / 4);  // mostly where it fails in the middle of appearing
  RegisterStore("shelf", nullptr);
}

TEST_CASE("An error on one rank is every rank's, and leaves what was there") {
  Random random(7);
  const TempDirectory directory;
  const std::string path = directory / "saved";
  const std::vector<TestTensor> first = {{"w", DType::kF32, {16, 4}, 1}};
  const std::vector<SaveEntry> entries(1, EntryOf("w", "{X:4}", "[<X>16, 4]", DType::kF32));
  REQUIRE(SaveAll(random, path, first, entries, 4, {}).ok());
  WriteSafetensors(directory / "first.safetensors", first);
  std::set<std::string> expected = {"saved", "first.safetensors"};

  const std::vector<TestTensor> second = {{"w", DType::kF32, {16, 4}, 2}};
  CHECK_THAT(std::string(SaveAll(random, path, second, entries, 4, {}).message()), Catch::Contains("already exists"));
  SaveOptions overwrite;
  overwrite.overwrite = true;

  std::vector<RankState> states;
  for (int64_t rank = 0; rank < 4; ++rank) states.push_back(StateOf(random, second, entries, rank));
  std::string part;
  SECTION("a fragment of another shape") {
    states[2].entries[0].from.shape[0] = 3;
    part = "this rank's fragment";
  }
  SECTION("another layout") {
    states[1].entries[0].layout = LayoutOf("[16, <X>4]", "{X:4}");
    states[1].entries[0].from = DenseView(states[1].entries[0].from.data, DType::kF32, {16, 1});
    part = "disagree";
  }
  SECTION("partial values") {
    for (RankState& state : states) state.entries[0].layout = LayoutOf("[16, 4] sum<X>", "{X:4}");
    part = "partial";
  }
  SECTION("one name twice") {
    for (RankState& state : states) state.entries.push_back(state.entries[0]);
    part = "twice";
  }
  SECTION("a rank that never comes") { part = "rank 3"; }
  LocalWorldOptions quick;
  quick.timeout = absl::Milliseconds(500);
  LocalWorld ranks(4, quick);
  const std::vector<absl::Status> statuses = ranks.RunEach([&](Communicator& communicator) -> absl::Status {
    const auto rank = static_cast<size_t>(communicator.rank());
    if (part == "rank 3" && rank == 3) return absl::InternalError("gone");
    return Save(path, states[rank].entries, {}, communicator, overwrite).status();
  });
  for (size_t rank = 0; rank < 3; ++rank) {
    CHECK_FALSE(statuses[rank].ok());
    CHECK_THAT(std::string(statuses[rank].message()), Catch::Contains(part));
  }
  const absl::StatusOr<VerifyReport> report = VerifyCheckpoints(directory / "first.safetensors", path);
  REQUIRE(report.ok());
  CHECK(report->differences.size() == 1);
  CHECK(NamesIn(directory.path()) == expected);

  CHECK(SaveAll(random, path, second, entries, 4, overwrite).ok());
  WriteSafetensors(directory / "first.safetensors", second);
  CHECK(VerifyCheckpoints(directory / "first.safetensors", path)->differences.size() == 1);
  CHECK(NamesIn(directory.path()) == expected);
}

}  // namespace
}  // namespace reshard::testing
