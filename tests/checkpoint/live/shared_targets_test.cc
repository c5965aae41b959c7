// Targets that share memory: what one of them gets must be what the others get there.
#include "checkpoint/live/shared_targets.h"

#include <algorithm>
#include <optional>
#include <set>

#include "reshard/live/load.h"
#include "reshard/runtime/local_world.h"
#include "tests/catch.h"
#include "tests/checkpoint/io/temp_directory.h"
#include "tests/checkpoint/live/tensors.h"
#include "tests/layouts.h"

namespace reshard::testing {
namespace {

// The byte offsets of the elements of a view in its buffer, row-major.
std::vector<int64_t> OffsetsOf(const TensorView& view, const char* buffer) {
  std::vector<int64_t> offsets = {static_cast<const char*>(view.data) - buffer};
  for (size_t d = 0; d < view.shape.size(); ++d) {
    std::vector<int64_t> next;
    for (const int64_t offset : offsets) {
      for (int64_t i = 0; i < view.shape[d]; ++i) next.push_back(offset + i * view.strides[d] * SizeOf(view.dtype));
    }
    offsets = std::move(next);
  }
  return offsets;
}

// A slice, in steps, of a transposed buffer of a random shape.
TensorView RandomView(Random& random, char* buffer, int64_t bytes) {
  const DType dtype = random.Chance(50) ? DType::kF32 : DType::kF16;
  const int64_t columns = random.Pick(1, 12), rows = bytes / SizeOf(dtype) / columns;
  TensorView view = DenseView(buffer, dtype, {rows, columns});
  for (size_t d = 0; d < 2; ++d) {
    const int64_t first = random.Chance(50) ? 0 : random.Pick(0, view.shape[d] - 1);
    const int64_t step = random.Pick(1, 3);
    view.data = static_cast<char*>(view.data) + first * view.strides[d] * SizeOf(dtype);
    view.shape[d] = random.Chance(50) ? (view.shape[d] - first + step - 1) / step : 1;
    view.strides[d] *= step;
  }
  if (random.Chance(30)) {
    std::swap(view.shape[0], view.shape[1]);
    std::swap(view.strides[0], view.strides[1]);
  }
  return view;
}

TEST_CASE("Targets that share memory get what they are given, unless an earlier one was given something else") {
  const uint64_t seed = Seed();
  int differences = 0, staged = 0;
  for (uint64_t run = 0; run < 2000; ++run) {
    INFO("seed " << seed << ", run " << run);
    Random random(seed + run);
    constexpr int64_t kBytes = 240;
    std::vector<char> buffer(kBytes, '\x5A'), truth(kBytes);
    for (char& byte : truth) byte = static_cast<char>(random.Pick(0, 255));
    std::vector<TensorView> views;
    for (int64_t i = random.Pick(1, 6); i > 0; --i) views.push_back(RandomView(random, buffer.data(), kBytes));
    if (random.Chance(30)) views.push_back(views[0]);
    live::SharedTargets shared(views);
    std::set<int64_t> written;
    std::vector<std::vector<int64_t>> offsets;
    for (size_t i = 0; i < views.size(); ++i) {
      const auto element = static_cast<size_t>(SizeOf(views[i].dtype));
      offsets.push_back(OffsetsOf(views[i], buffer.data()));
      std::vector<char> memory(static_cast<size_t>(shared.StagedBytes(i)));
      const TensorView into = shared.staged(i) ? shared.StagedIn(i, memory.data()) : views[i];
      staged += shared.staged(i);
      const std::vector<int64_t> places = OffsetsOf(into, shared.staged(i) ? memory.data() : buffer.data());
      char* const base = shared.staged(i) ? memory.data() : buffer.data();
      for (size_t k = 0; k < places.size(); ++k) {
        std::copy_n(&truth[offsets[i][k]], element, base + places[k]);
      }
      const bool changes = shared.staged(i) && random.Chance(20);
      size_t changed = 0;
      if (changes) {
        changed = static_cast<size_t>(random.Pick(0, static_cast<int64_t>(places.size()) - 1));
        base[places[changed]] ^= 1;
      }
      const std::optional<size_t> other = shared.Settle(i, into);
      if (changes && written.contains(offsets[i][changed])) {
        ++differences;
        REQUIRE(other.has_value());
        REQUIRE(*other < i);
        const auto size = SizeOf(views[*other].dtype);
        CHECK(std::any_of(offsets[*other].begin(), offsets[*other].end(),
                          [&](int64_t at) { return at <= offsets[i][changed] && offsets[i][changed] < at + size; }));
        break;
      }
      REQUIRE_FALSE(other.has_value());
      if (changes) truth[offsets[i][changed]] ^= 1;
      for (const int64_t at : offsets[i]) {
        for (int64_t b = 0; b < SizeOf(views[i].dtype); ++b) written.insert(at + b);
      }
      size_t wrong = 0;
      for (int64_t at = 0; at < kBytes; ++at) {
        const auto byte = static_cast<size_t>(at);
        // Later targets that are not staged are loaded when their turn comes.
        wrong += buffer[byte] != (written.contains(at) ? truth[byte] : '\x5A');
      }
      REQUIRE(wrong == 0);
    }
  }
  CHECK(differences > 20);
  CHECK(staged > 1000);
}

// Two ranks load `names` of a file, each into its half of one memory, all of them.
std::vector<absl::Status> LoadTied(const std::string& path, const std::vector<std::string>& names, LoadOptions options,
                                   std::vector<std::vector<char>>* memory) {
  std::vector<absl::Status> statuses(2);
  memory->assign(2, std::vector<char>(4 * 6 * 4, '\x5A'));
  LocalWorld world(2);
  (void)world.RunEach([&](Communicator& communicator) -> absl::Status {
    const auto rank = static_cast<size_t>(communicator.rank());
    std::vector<LoadEntry> entries;
    for (const std::string& name : names) {
      entries.push_back({name, LayoutOf("[<x>8, 6]", "{x:2}"),
                         DenseView(static_cast<void*>((*memory)[rank].data()), DType::kF32, {4, 6})});
    }
    statuses[rank] = Load(path, entries, {}, communicator, options).status();
    return statuses[rank];
  });
  return statuses;
}

TEST_CASE("Tied tensors are loaded, in one group or in several, by either way of reading") {
  const TempDirectory directory;
  const TestTensor tensor{"a", DType::kF32, {8, 6}, 1};
  TestTensor same = tensor, third = tensor, other = tensor;
  same.name = "b", third.name = "c", other.name = "d", other.seed = 2;
  const std::string path = directory / "model.safetensors";
  WriteSafetensors(path, {tensor, same, third, other});
  for (const ReadMode mode : {ReadMode::kOnce, ReadMode::kOwn}) {
    for (const int64_t group_bytes : {int64_t{1}, int64_t{200}, int64_t{1} << 20}) {
      INFO("groups of " << group_bytes << " bytes");
      LoadOptions options;
      options.read = mode;
      options.group_bytes = group_bytes;
      std::vector<std::vector<char>> memory;
      for (const absl::Status& status : LoadTied(path, {"a", "b", "c"}, options, &memory))
        CHECK(status.ToString() == "OK");
      for (int64_t rank = 0; rank < 2; ++rank) {
        std::string held, wanted;
        held.assign(memory[rank].begin(), memory[rank].end());
        for (int64_t i = 0; i < 24; ++i) wanted += ElementOf(tensor, 24 * rank + i);
        CHECK(held == wanted);
      }
      for (const absl::Status& status : LoadTied(path, {"a", "b", "d"}, options, &memory)) {
        CHECK(absl::IsInvalidArgument(status));
        CHECK_THAT(std::string(status.message()), Catch::Contains("\"a\" and \"d\" share memory"));
      }
    }
  }
}

}  // namespace
}  // namespace reshard::testing
