// The order of devices that moves the fewest bytes, against all orders, and what it must keep.
#include "reshard/planner/relabel.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "planner/relabel/assignment.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/planner/lacked.h"

namespace reshard {
namespace {

using testing::MeshOf;

Layout LayoutOf(const std::string& mesh, const std::string& text) { return ParseLayout(text, MeshOf(mesh)).value(); }

// Bytes that the position's shard lacks on a device.
int64_t Lacks(const Layout& source, const Layout& target, int64_t device, int64_t position, DType dtype) {
  return testing::LackedElements(source, target, device, position) * SizeOf(dtype);
}

struct Best {
  int64_t bytes = 0;
  int64_t stay = 0;
};

// All orders.
Best BestOrder(const std::vector<Problem>& problems) {
  const Mesh& mesh = problems[0].target.mesh();
  const auto n = static_cast<size_t>(mesh.size());
  std::vector<std::vector<int64_t>> lacks(n, std::vector<int64_t>(n, 0));
  for (size_t i = 0; i < n; ++i) {
    for (size_t p = 0; p < n; ++p) {
      for (const Problem& problem : problems) {
        lacks[i][p] += Lacks(problem.source, problem.target, mesh.Device(static_cast<int64_t>(i)),
                             static_cast<int64_t>(p), problem.dtype);
      }
    }
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  Best best{INT64_MAX, 0};
  do {
    Best one;
    for (size_t p = 0; p < n; ++p) {
      one.bytes += lacks[order[p]][p];
      one.stay += order[p] == p ? 1 : 0;
    }
    if (one.bytes < best.bytes || (one.bytes == best.bytes && one.stay > best.stay)) best = one;
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

void CheckBest(const std::vector<Problem>& problems) {
  const auto relabelled = Relabel(problems);
  REQUIRE(relabelled.ok());
  const Mesh& mesh = problems[0].target.mesh();
  const Mesh& now = relabelled->target_mesh;
  CAPTURE(ToString(problems[0].source), ToString(problems[0].target), ToString(now));
  CHECK(now.axes() == mesh.axes());
  int64_t bytes = 0, before = 0, stay = 0;
  std::vector<int64_t> ids, sorted;
  for (int64_t p = 0; p < mesh.size(); ++p) {
    for (const Problem& problem : problems) {
      bytes += Lacks(problem.source, problem.target, now.Device(p), p, problem.dtype);
      before += Lacks(problem.source, problem.target, mesh.Device(p), p, problem.dtype);
    }
    stay += now.Device(p) == mesh.Device(p) ? 1 : 0;
    ids.push_back(now.Device(p));
    sorted.push_back(mesh.Device(p));
  }
  CHECK(ids == relabelled->devices());
  std::sort(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  CHECK(ids == sorted);
  CHECK(relabelled->bytes == bytes);
  CHECK(relabelled->bytes_before == before);
  const Best best = BestOrder(problems);
  CHECK(bytes == best.bytes);
  CHECK(stay == best.stay);
}

TEST_CASE("no order of the devices moves fewer bytes, and none as good leaves more devices where they were") {
  const uint64_t seed = testing::Seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const std::vector<std::pair<std::string, std::vector<std::string>>> sources = {
      {"{a:2,b:3}", {"[<a>7, <b>6]", "[<b,a>12, 5]", "[6, <a,b>9]", "[<2,b>12, <a>3]", "[5, 5]", "[<a=[1,5]>6, 4]"}},
      {"{a:5}@1", {"[<a>11, 4]", "[<2,~a>20, 4]", "[4, <a>9]"}},
      {"{a:7}", {"[<a>11, 4]", "[8, <a>9]"}},
      {"{a:2,b:2}@[3,0,5,9]", {"[<a>7, <b>6]", "[<b,a>12, 5]"}},
  };
  const std::vector<std::pair<std::string, std::vector<std::string>>> targets = {
      {"{x:3,y:2}", {"[<x>@, <y>@]", "[<y,x>@, @]", "[@, <x>@]", "[<3,y>@, <x>@]", "[<y=[%]>@, @]"}},
      {"{x:6}@[5,2,0,3,1,4]", {"[<x>@, @]", "[@, <x>@]", "[@, @]"}},
      {"{x:7}", {"[<x>@, @]", "[@, <2,x>@]"}},
      {"{x:2,y:2}@2", {"[<x>@, <y>@]", "[@, <y,x>@]"}},
  };
  for (int round = 0; round < 60; ++round) {
    const auto& [target_mesh, target_texts] = targets[random() % targets.size()];
    const auto mesh = MeshOf(target_mesh);
    std::vector<Problem> problems;
    const size_t count = 1 + random() % 3;
    while (problems.size() < count) {
      const auto& [source_mesh, source_texts] = sources[random() % sources.size()];
      const Layout source = LayoutOf(source_mesh, source_texts[random() % source_texts.size()]);
      std::string text = target_texts[random() % target_texts.size()];
      for (int d = 0; d < 2; ++d) {
        const int64_t size = source.dim(d).size;
        if (const size_t at = text.find('%'); at != std::string::npos && text.find('%') < text.find('@')) {
          text.replace(at, 1, "1," + std::to_string(size - 1));
        }
        text.replace(text.find('@'), 1, std::to_string(size));
      }
      problems.push_back({source, ParseLayout(text, mesh).value(), random() % 2 == 0 ? DType::kI8 : DType::kF32});
    }
    CheckBest(problems);
  }
}

TEST_CASE("layouts that differ by an order of ranks need no byte") {
  const uint64_t seed = testing::Seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 10; ++round) {
    std::vector<int64_t> ids(24);
    std::iota(ids.begin(), ids.end(), int64_t{0});
    std::shuffle(ids.begin(), ids.end(), random);
    const auto shuffled = *Mesh::Create({{"x", 4}, {"y", 3}, {"r", 2}}, ids);
    const Layout source = LayoutOf("{x:4,y:3,r:2}", "[<x>13, <y>9]");
    const Layout target = *OnMesh(source, shuffled);
    const auto relabelled = Relabel({source, target, DType::kBF16});
    REQUIRE(relabelled.ok());
    CHECK(relabelled->bytes_before > 0);
    CHECK(relabelled->bytes == 0);
    const auto plan = MakePlan({source, *OnMesh(target, relabelled->target_mesh), DType::kBF16});
    REQUIRE(plan.ok());
    CHECK(plan->steps.empty());
  }
  // Transposed grids hold the same blocks under other ranks.
  const auto grids =
      Relabel({LayoutOf("{x:4,y:2}", "[<x>64, <y>64]"), LayoutOf("{y:2,x:4}", "[<x>64, <y>64]"), DType::kF64});
  REQUIRE(grids.ok());
  CHECK(grids->bytes_before > 0);
  CHECK(grids->bytes == 0);
}

TEST_CASE("G16: a 2 x 4 grid of 100-blocks on a 4 x 2 grid saves a third") {
  // Block-cyclic as in COSTA, and one block a process. Of the matrix (3/4 - 1/2) / (3/4) need not move.
  const std::vector<std::pair<std::string, std::string>> cases = {{"[<4,x>800, <2,y>800]", "[<2,x>800, <4,y>800]"},
                                                                  {"[<x>800, <y>800]", "[<x>800, <y>800]"}};
  for (const auto& [from, to] : cases) {
    CAPTURE(from, to);
    const auto relabelled = Relabel({LayoutOf("{x:2,y:4}", from), LayoutOf("{x:4,y:2}", to), DType::kF64});
    REQUIRE(relabelled.ok());
    CHECK(relabelled->bytes_before == 800 * 800 * 8 * 3 / 4);
    CHECK(relabelled->bytes == 800 * 800 * 8 / 2);
  }
}

TEST_CASE("nothing to gain leaves the mesh as it is") {
  const Layout source = LayoutOf("{X:4}", "[<X>16, 4]"), target = LayoutOf("{X:4}", "[16, <X>4]");
  const auto relabelled = Relabel({source, target, DType::kF32});
  REQUIRE(relabelled.ok());
  CHECK(relabelled->target_mesh == target.mesh());
  const auto apart = Relabel({source, LayoutOf("{X:4}@4", "[16, <X>4]"), DType::kF32});
  REQUIRE(apart.ok());
  CHECK(apart->target_mesh == ParseMesh("{X:4}@4").value());
  CHECK(apart->bytes == apart->bytes_before);
  const auto scalar = Relabel({LayoutOf("{X:2}", "[]"), LayoutOf("{X:3}", "[]"), DType::kF32});
  REQUIRE(scalar.ok());
  CHECK(scalar->bytes == 4);
}

TEST_CASE("many devices, many alike") {
  // Each device of 512 is alone of its kind; the best order is known: positions that need what devices hold.
  std::vector<int64_t> ids(512);
  std::iota(ids.begin(), ids.end(), int64_t{0});
  std::mt19937_64 random(testing::Seed());
  std::shuffle(ids.begin(), ids.end(), random);
  const Layout source = LayoutOf("{dp:64,tp:8}", "[<dp>6400, <tp>800]");
  const auto shuffled = *Mesh::Create({{"dp", 64}, {"tp", 8}}, ids);
  const auto alone = Relabel({source, *OnMesh(source, shuffled), DType::kF32});
  REQUIRE(alone.ok());
  CHECK(alone->bytes == 0);
  // 64 kinds of 16 devices.
  const auto alike =
      Relabel({LayoutOf("{a:64,r:16}", "[<a>6400, 4]"), LayoutOf("{r:16,a:64}", "[<a>6400, 4]"), DType::kF32});
  REQUIRE(alike.ok());
  CHECK(alike->bytes == 0);
}

TEST_CASE("weights far above 32 bits are compared exactly") {
  const int64_t large = (int64_t{1} << 60) + 1;
  const relabel::Transportation problem{
      {1, 1, 1}, {1, 1, 1}, {large, large - 1, 0, large - 1, large - 3, 0, 0, 0, 1}, {1, 0, 0, 0, 1, 0, 0, 0, 1}};
  // 2 large - 2 across against 2 large - 3 where they are.
  CHECK(relabel::BestFlow(problem) == std::vector<int64_t>{0, 1, 0, 1, 0, 0, 0, 0, 1});
}

TEST_CASE("what cannot be relabelled is refused") {
  const Layout source = LayoutOf("{X:2}", "[<X>4]");
  CHECK(Relabel({source, LayoutOf("{X:2}", "[<X>6]"), DType::kF32}).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(Relabel({LayoutOf("{X:2}", "[4] sum<X>"), source, DType::kF32}).status().code() ==
        absl::StatusCode::kUnimplemented);
  CHECK(Relabel(absl::Span<const Problem>()).status().code() == absl::StatusCode::kInvalidArgument);
  const absl::Status meshes =
      Relabel({{source, source, DType::kF32}, {source, LayoutOf("{X:2}@2", "[<X>4]"), DType::kF32}}, {"a", "b"})
          .status();
  CHECK(meshes.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(meshes.message()).find("b: ") == 0);
  CHECK_FALSE(OnMesh(source, MeshOf("{Y:2}")).ok());
}

}  // namespace
}  // namespace reshard
