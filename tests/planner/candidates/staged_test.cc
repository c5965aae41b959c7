// Exchanges in stages.
#include "planner/candidates/staged.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/planner/candidates/chains.h"
#include "tests/property.h"
#include "tests/sanitized.h"

namespace reshard {
namespace {

using candidates::Stage;
using candidates::Stages;
using testing::Axis;
using testing::Chain;
using testing::LayoutOf;
using testing::MeshText;
using testing::RandomLayout;
using testing::WrongWith;

Chain ChainOf(std::vector<Stage> stages) {
  Chain out;
  for (Stage& stage : stages) out.push_back(std::move(stage.step));
  return out;
}

std::vector<std::string> Layouts(const std::vector<Stage>& stages) {
  std::vector<std::string> out;
  for (const Stage& stage : stages) out.push_back(ToString(stage.step.to));
  return out;
}

TEST_CASE("a digit goes part by part") {
  const Layout from = LayoutOf("[<a>4096, 4096]", "{a:1024}"), to = LayoutOf("[4096, <a>4096]", "{a:1024}");
  CHECK(Layouts(Stages(from, to, nullptr, 0, 32)) ==
        std::vector<std::string>{"[128<32,a:(32)32>4096, 128<a:(1)32>4096]", "[4096, 4<a>4096]"});
  CHECK(Layouts(Stages(from, to, nullptr, 0, 1024)) == std::vector<std::string>{"[4096, 4<a>4096]"});
}

TEST_CASE("digits that take each other's places go together, and one that takes another's goes after it") {
  // b takes the place of a, which goes to the other dimension.
  const Layout from = LayoutOf("[<a>64, 64]", "{a:8,b:8}"), to = LayoutOf("[<b>64, <a>64]", "{a:8,b:8}");
  for (const Stage& stage : Stages(from, to, nullptr, 0, 8)) CHECK(stage.devices <= 8);
  CHECK(WrongWith(from, to, ChainOf(Stages(from, to, nullptr, 0, 8))) == "");
  // A swap has one peer, however large the axes.
  const Layout swapped = LayoutOf("[<b>64, <a>64]", "{a:8,b:8}"), before = LayoutOf("[<a>64, <b>64]", "{a:8,b:8}");
  CHECK(Layouts(Stages(before, swapped, nullptr, 0, 64)) == std::vector<std::string>{ToString(swapped)});
}

TEST_CASE("stages lead to the target within max(source, target), and no more devices meet than allowed") {
  const uint64_t seed = testing::Seed();
  const std::vector<std::vector<Axis>> meshes = {{{"a", 16}, {"b", 8}},
                                                 {{"a", 4}, {"b", 4}, {"c", 8}},
                                                 {{"a", 64}},
                                                 {{"a", 6}, {"b", 12}},
                                                 {{"a", 2}, {"b", 2}, {"c", 4}, {"d", 4}}};
  int staged = 0;
  for (int round = 0; round < 2000; ++round) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(round));
    const auto& axes = meshes[random() % meshes.size()];
    const Mesh mesh = *ParseMesh(MeshText(axes));
    const std::vector<int64_t> shape = {mesh.size() * 4, mesh.size() * 2, mesh.size()};
    const Layout from = LayoutOf(RandomLayout(random, axes, shape), MeshText(axes));
    const Layout to = LayoutOf(RandomLayout(random, axes, shape), MeshText(axes));
    const int64_t group = 2 + static_cast<int64_t>(random() % 8);
    INFO("seed " << seed << ", round " << round << ": " << ToString(mesh) << " " << ToString(from) << " -> "
                 << ToString(to) << ", groups of " << group);
    const std::vector<Stage> stages = Stages(from, to, nullptr, 0, group);
    CHECK(stages.back().step.to == to);
    const int64_t most = std::max(from.MaxLocalElements(), to.MaxLocalElements());
    for (const Stage& stage : stages) {
      CHECK(stage.step.to.MaxLocalElements() <= most);
      if (stages.size() > 1) CHECK(stage.devices <= std::max<int64_t>(group, 3));  // 3: the largest prime of a size
    }
    staged += stages.size() > 1;
  }
  CHECK(staged > 1000);
}

TEST_CASE("stages of sizes that do not divide are contiguous where nothing of the source is left") {
  const Layout from = LayoutOf("[<a>131071, 65537]", "{a:1024}"), to = LayoutOf("[131071, <a>65537]", "{a:1024}");
  CHECK(
      Layouts(Stages(from, to, nullptr, 0, 32)) ==
      std::vector<std::string>{ToString(LayoutOf("[<32,a:(32)32>131071, <a:(1)32>65537]", "{a:1024}")), ToString(to)});
  // What stays along a dimension keeps its place there.
  const Layout before = LayoutOf("[<a,b>1001, 999]", "{a:64,b:2}"), after = LayoutOf("[<b>1001, <a>999]", "{a:64,b:2}");
  for (const Stage& stage : Stages(before, after, nullptr, 0, 8)) {
    CHECK(stage.step.to.MaxLocalElements() <= std::max(before.MaxLocalElements(), after.MaxLocalElements()));
  }
}

TEST_CASE("uneven stages are plans too") {
  const uint64_t seed = testing::Seed();
  const std::vector<std::vector<Axis>> meshes = {{{"a", 4}, {"b", 3}}, {{"a", 16}}, {{"a", 2}, {"b", 2}, {"c", 4}}};
  int staged = 0;
  constexpr int kProblems = testing::kSanitized ? 60 : 400;
  for (int round = 0; round < kProblems; ++round) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(round));
    const auto& axes = meshes[random() % meshes.size()];
    const std::vector<int64_t> shape = {37, 53};
    const Layout from = LayoutOf(RandomLayout(random, axes, shape, {.blocks = true}), MeshText(axes));
    const Layout to = LayoutOf(RandomLayout(random, axes, shape, {.blocks = true}), MeshText(axes));
    INFO("seed " << seed << ", round " << round << ": " << ToString(from.mesh()) << " " << ToString(from) << " -> "
                 << ToString(to));
    const std::vector<Stage> stages = Stages(from, to, nullptr, 0, 2 + static_cast<int64_t>(random() % 3));
    REQUIRE(stages.back().step.to == to);
    staged += stages.size() > 1;
    if (stages.size() > 1) REQUIRE(WrongWith(from, to, ChainOf(stages)) == "");
  }
  CHECK(staged > kProblems / 10);
}

TEST_CASE("a plan with thousands of peers goes in stages if that is faster, and only for the time") {
  const Layout from = LayoutOf("[<a>131072, 65536]", "{a:4096}"), to = LayoutOf("[131072, <a>65536]", "{a:4096}");
  PlanOptions options;
  options.topology = *Topology::Preset("dgx-h100");
  const auto plan = MakePlan({from, to, DType::kBF16}, options);
  REQUIRE(plan.ok());
  CHECK(plan->steps.size() > 2);
  for (const Step& step : plan->steps) CHECK(step.peers_max < 64);
  // Without stages: 512 nodes, a latency each.
  CHECK(plan->totals.time_ns < 512 * options.topology.levels.back().latency_ns / 4);
  options.objective = Objective::kBytes;
  const auto fewest = MakePlan({from, to, DType::kBF16}, options);
  REQUIRE(fewest.ok());
  CHECK(fewest->totals.levels.back().nic_bytes_max == fewest->bounds.levels.back().nic_recv_bytes_max);
}

}  // namespace
}  // namespace reshard
