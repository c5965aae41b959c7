// Loading over ranks that are threads: any checkpoint into any layout, every element read once, errors on every rank.
#include "reshard/live/load.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/live/read_layout.h"
#include "reshard/checkpoint/convert.h"
#include "reshard/layout/text.h"
#include "reshard/runtime/local_world.h"
#include "tests/catch.h"
#include "tests/checkpoint/io/temp_directory.h"
#include "tests/checkpoint/live/tensors.h"
#include "tests/layouts.h"

namespace reshard::testing {
namespace {

constexpr char kUntouched = '\x5A';

// A rank's destination: dense, or every second element of a larger tensor.
struct Destination {
  std::vector<char> memory;  // stays where it is when this is moved
  TensorView view;
  bool strided = false;

  Destination(const Held& held, bool in_mesh, DType dtype, bool make_strided) : strided(make_strided) {
    const auto elements = static_cast<int64_t>(held.numbers.size());
    memory.assign(static_cast<size_t>(elements * SizeOf(dtype) * (strided ? 2 : 1)), kUntouched);
    view = DenseView(static_cast<void*>(memory.data()), dtype, held.shape);
    if (strided) {
      for (int64_t& stride : view.strides) stride *= 2;
    }
    if (!in_mesh) view = TensorView();
  }
};

void CheckHeld(const TestTensor& tensor, const Held& held, const Destination& destination) {
  const auto element = static_cast<size_t>(SizeOf(tensor.dtype));
  size_t wrong = 0;
  for (size_t i = 0; i < held.numbers.size(); ++i) {
    const size_t at = i * element * (destination.strided ? 2 : 1);
    wrong += std::string(&destination.memory[at], element) != ElementOf(tensor, held.numbers[i]);
    if (destination.strided) wrong += destination.memory[at + element] != kUntouched;
  }
  CHECK(wrong == 0);
}

LayoutRules RulesFor(Random& random, const std::string& mesh, const std::vector<TestTensor>& tensors) {
  nlohmann::json layouts = nlohmann::json::array();
  for (const TestTensor& tensor : tensors) layouts.push_back({tensor.name, random.LayoutText(mesh, tensor.shape)});
  return LayoutRules::Parse(nlohmann::json{{"mesh", mesh}, {"layouts", layouts}}.dump()).value();
}

// The tensors as a checkpoint at directory/"checkpoint": as they are, or cut by layouts of any mesh.
std::string AnyCheckpoint(Random& random, const TempDirectory& directory, const std::vector<TestTensor>& tensors) {
  const std::string whole = directory / "model.safetensors";
  WriteSafetensors(whole, tensors);
  if (random.Chance(20)) return whole;
  const std::string mesh = random.MeshText(8);
  const absl::StatusOr<ConvertSummary> converted =
      Convert(whole, directory / "checkpoint", RulesFor(random, mesh, tensors), {});
  REQUIRE(converted.status().ToString() == "OK");
  return directory / "checkpoint";
}

Topology NodesOfTwo() {
  Topology nodes = *Topology::Preset("dgx-h100");
  nodes.levels[0].devices = 2;
  return nodes;
}

TEST_CASE("Any checkpoint is loaded into any layout") {
  const uint64_t seed = Seed();
  for (uint64_t run = 0; run < 150; ++run) {
    INFO("seed " << seed << ", run " << run);
    Random random(seed + run);
    const TempDirectory directory;
    const std::vector<TestTensor> tensors = random.Tensors();
    const std::string checkpoint = AnyCheckpoint(random, directory, tensors);
    const int64_t world = random.Pick(1, 6);
    std::vector<LoadEntry> entries;
    for (const TestTensor& tensor : tensors) {
      const std::string mesh = random.MeshText(world);
      entries.push_back({tensor.name, LayoutOf(random.LayoutText(mesh, tensor.shape), mesh), {}});
    }
    LoadOptions options;
    options.read = random.Chance(30) ? ReadMode::kOwn : ReadMode::kOnce;
    options.group_bytes = random.Chance(50) ? random.Pick(1, 200) : options.group_bytes;
    options.threads = static_cast<int>(random.Pick(0, 2));
    if (random.Chance(30)) options.topology = NodesOfTwo();

    std::vector<std::vector<Destination>> destinations(static_cast<size_t>(world));
    std::vector<std::vector<Held>> held(static_cast<size_t>(world));
    for (int64_t rank = 0; rank < world; ++rank) {
      for (size_t t = 0; t < tensors.size(); ++t) {
        Held holds = HeldBy(ToString(entries[t].layout.mesh()), ToString(entries[t].layout), rank);
        destinations[rank].emplace_back(holds, !holds.numbers.empty() || !holds.shape.empty(), tensors[t].dtype,
                                        random.Chance(30));
        held[rank].push_back(std::move(holds));
      }
    }
    LocalWorld ranks(world);
    const absl::Status loaded = ranks.Run([&](Communicator& communicator) -> absl::Status {
      std::vector<LoadEntry> own = entries;
      for (size_t t = 0; t < own.size(); ++t) {
        own[t].into = destinations[communicator.rank()][t].view;
      }
      return Load(checkpoint, own, {}, communicator, options).status();
    });
    REQUIRE(loaded.ToString() == "OK");
    for (size_t rank = 0; rank < destinations.size(); ++rank) {
      for (size_t t = 0; t < tensors.size(); ++t) {
        INFO("rank " << rank << ", " << tensors[t].name << ": " << ToString(entries[t].layout.mesh()) << " "
                     << ToString(entries[t].layout));
        CheckHeld(tensors[t], held[rank][t], destinations[rank][t]);
      }
    }
  }
}

// Loads one tensor of floats on four ranks.
struct Loaded {
  std::vector<absl::StatusOr<LoadSummary>> ranks;
  int64_t read() const {
    int64_t bytes = 0;
    for (const auto& rank : ranks) bytes += rank.ok() ? rank->read_bytes : 0;
    return bytes;
  }
};

Loaded LoadOnFour(const std::string& checkpoint, const std::string& name, const std::vector<std::string>& layouts,
                  LoadOptions options, DType dtype = DType::kF32) {
  const std::string mesh = "{X:2,Y:2}";
  Loaded loaded;
  loaded.ranks.resize(4);
  LocalWorld world(4);
  (void)world.RunEach([&](Communicator& communicator) -> absl::Status {
    const auto rank = static_cast<size_t>(communicator.rank());
    const std::string& layout = layouts[rank % layouts.size()];
    const Held held = HeldBy(mesh, layout, communicator.rank());
    Destination destination(held, true, dtype, false);
    const LoadEntry entry{name, LayoutOf(layout, mesh), destination.view};
    loaded.ranks[rank] = Load(checkpoint, {&entry, 1}, {}, communicator, options);
    return loaded.ranks[rank].status();
  });
  return loaded;
}

struct Rows {
  TempDirectory directory;
  TestTensor tensor;
  std::string path;

  explicit Rows(std::vector<int64_t> shape = {64, 32}, const std::string& cut = "[<dp>, ...]")
      : tensor{"w", DType::kF32, std::move(shape), 1} {
    WriteSafetensors(directory / "w.safetensors", {tensor});
    path = directory / "rows";
    const LayoutRules rules = LayoutRules::ForAll("{dp:4}", cut).value();
    REQUIRE(Convert(directory / "w.safetensors", path, rules, {}).ok());
  }
};

TEST_CASE("Whatever the target, no two devices read the same element, and all are read") {
  const uint64_t seed = Seed();
  for (uint64_t run = 0; run < 300; ++run) {
    INFO("seed " << seed << ", run " << run);
    Random random(seed + run);
    std::vector<int64_t> shape = random.Shape();
    if (shape.empty()) shape = {1};
    const std::string mesh = random.MeshText(8);
    const std::string target = random.LayoutText(mesh, shape);
    std::vector<int64_t> chunk;
    for (const int64_t size : shape) chunk.push_back(random.Pick(1, std::max<int64_t>(1, size)));
    const absl::StatusOr<Layout> read = live::ReadLayout(LayoutOf(target, mesh), DType::kF32, chunk);
    REQUIRE(read.status().ToString() == "OK");
    std::vector<int> readers(static_cast<size_t>(TestTensor{"", DType::kI8, shape, 0}.elements()), 0);
    for (int64_t device = 0; device < 8; ++device) {
      for (const int64_t number : HeldBy(mesh, ToString(*read), device).numbers) ++readers[number];
    }
    INFO(mesh << " " << target << " is read as " << ToString(*read));
    CHECK(std::count(readers.begin(), readers.end(), 1) == static_cast<int64_t>(readers.size()));
  }
}

TEST_CASE("Read once: ranks together read hardly more bytes than the tensor has, replicas or not") {
  const Rows rows({1024, 64});
  constexpr int64_t kBytes = 1024 * 64 * 4;
  constexpr int64_t kFrames = 4 * 4 * 4096;  // of four streams, looked at by four ranks
  LoadOptions options;
  options.check = false;
  for (const std::string layout : {"[1024, 64]", "[<X>1024, 64]", "[1024, <Y,X>64]", "[<X,Y>1024, 64]"}) {
    INFO(layout);
    const Loaded loaded = LoadOnFour(rows.path, "w", {layout}, options);
    for (const auto& rank : loaded.ranks) REQUIRE(rank.status().ToString() == "OK");
    CHECK(loaded.read() >= kBytes);
    CHECK(loaded.read() <= kBytes + kFrames);
  }
  options.read = ReadMode::kOwn;
  const Loaded own = LoadOnFour(rows.path, "w", {"[1024, 64]"}, options);
  CHECK(own.read() >= 4 * kBytes);
  for (const auto& rank : own.ranks) CHECK(rank->received_bytes == 0);
}

// Each rank compares what it uses, so that a rank that uses part of each chunk reads all of them; but not the parts
// again.
TEST_CASE("Ranks read chunks once, whole or in part, although they compare them") {
  // As dense rows, and as columns, which lie apart in the tensor.
  constexpr int64_t kBytes = 1024 * 64 * 4;
  constexpr int64_t kFrames = 4 * 4 * 2 * 4096;  // the begin and the end of each
  for (const std::string cut : {"[<dp>, ...]", "[*, <dp>]"}) {
    INFO(cut);
    const Rows rows({1024, 64}, cut);
    LoadOptions options;
    options.read = ReadMode::kOwn;
    for (const auto& [layout, times] : {std::pair<std::string, int64_t>{"[1024, 64]", 4},
                                        {cut[1] == '<' ? "[<X,Y>1024, 64]" : "[1024, <X,Y>64]", 1},
                                        {cut[1] == '<' ? "[1024, <X,Y>64]" : "[<X,Y>1024, 64]", 4}}) {
      INFO(layout);
      const Loaded loaded = LoadOnFour(rows.path, "w", {layout}, options);
      for (const auto& rank : loaded.ranks) REQUIRE(rank.status().ToString() == "OK");
      CHECK(loaded.read() >= times * kBytes);
      CHECK(loaded.read() <= times * kBytes + kFrames);
    }
    const std::string file = rows.path + "/__2_0.distcp";
    std::fstream data(file, std::ios::in | std::ios::out | std::ios::binary);
    data.seekp(static_cast<std::streamoff>(std::filesystem::file_size(file) / 2));
    data.put('\x7f').put('\x01').put('\x7f').put('\x01');
    data.close();
    const Loaded damaged = LoadOnFour(rows.path, "w", {"[1024, 64]"}, options);
    for (const auto& rank : damaged.ranks) CHECK_FALSE(rank.ok());
    options.check = false;
    for (const auto& rank : LoadOnFour(rows.path, "w", {"[1024, 64]"}, options).ranks) CHECK(rank.ok());
  }
}

void RequireOnAll(const Loaded& loaded, absl::StatusCode code, const std::string& part) {
  int with_code = 0;
  for (const auto& rank : loaded.ranks) {
    CHECK_FALSE(rank.ok());
    with_code += rank.status().code() == code;
    CHECK_THAT(std::string(rank.status().message()), Catch::Contains(part));
  }
  CHECK(with_code >= 1);
}

TEST_CASE("Errors reach every rank") {
  const Rows rows;
  SECTION("no such tensor") {
    RequireOnAll(LoadOnFour(rows.path, "v", {"[64, 32]"}, {}), absl::StatusCode::kInvalidArgument,
                 "\"v\" is not in the checkpoint");
  }
  SECTION("another shape") {
    RequireOnAll(LoadOnFour(rows.path, "w", {"[32, 64]"}, {}), absl::StatusCode::kInvalidArgument, "[64, 32]");
  }
  SECTION("another dtype") {
    RequireOnAll(LoadOnFour(rows.path, "w", {"[64, 32]"}, {}, DType::kI32), absl::StatusCode::kInvalidArgument,
                 "not converted");
  }
  SECTION("partial values") {
    RequireOnAll(LoadOnFour(rows.path, "w", {"[64, 32] sum<X>"}, {}), absl::StatusCode::kInvalidArgument, "partial");
  }
  SECTION("no checkpoint") {
    RequireOnAll(LoadOnFour(rows.directory / "none", "w", {"[64, 32]"}, {}), absl::StatusCode::kNotFound, "none");
  }
  SECTION("ranks that disagree") {
    RequireOnAll(LoadOnFour(rows.path, "w", {"[64, 32]", "[<X>64, 32]"}, {}), absl::StatusCode::kFailedPrecondition,
                 "disagree");
  }
  SECTION("ranks that plan for different networks") {
    Loaded loaded;
    loaded.ranks.resize(4);
    LocalWorld world(4);
    (void)world.RunEach([&](Communicator& communicator) -> absl::Status {
      const auto rank = static_cast<size_t>(communicator.rank());
      Destination destination(HeldBy("{X:2,Y:2}", "[64, 32]", communicator.rank()), true, DType::kF32, false);
      const LoadEntry entry{"w", LayoutOf("[64, 32]", "{X:2,Y:2}"), destination.view};
      LoadOptions options;
      if (rank == 2) options.topology = NodesOfTwo();
      loaded.ranks[rank] = Load(rows.path, {&entry, 1}, {}, communicator, options);
      return loaded.ranks[rank].status();
    });
    RequireOnAll(loaded, absl::StatusCode::kFailedPrecondition, "topology");
  }
  SECTION("a flipped byte, seen by one rank") {
    const std::string file = rows.path + "/__2_0.distcp";
    std::fstream data(file, std::ios::in | std::ios::out | std::ios::binary);
    data.seekp(static_cast<std::streamoff>(std::filesystem::file_size(file) / 2));
    data.put('\x7F');
    data.close();
    for (const ReadMode mode : {ReadMode::kOnce, ReadMode::kOwn}) {
      LoadOptions options;
      options.read = mode;
      RequireOnAll(LoadOnFour(rows.path, "w", {"[<X>64, 32]"}, options), absl::StatusCode::kDataLoss, "damaged");
    }
  }
}

}  // namespace
}  // namespace reshard::testing
