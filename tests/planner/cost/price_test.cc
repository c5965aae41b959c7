// What a few hundred devices tell about a chain, beside its exact price.
#include "planner/cost/price.h"

#include <random>
#include <vector>

#include "planner/transfers/shard_maps.h"
#include "reshard/layout/text.h"
#include "reshard/planner/topology.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/planner/candidates/chains.h"
#include "tests/sanitized.h"

namespace reshard {
namespace {

using cost::ChainStep;
using testing::Axis;
using testing::LayoutOf;
using testing::MeshText;

TEST_CASE("a sample says no more time than the exact price") {
  const uint64_t seed = testing::Seed();
  const std::vector<std::vector<Axis>> meshes = {
      {{"a", 1536}}, {{"a", 64}, {"b", 24}}, {{"a", 8}, {"b", 16}, {"c", 16}}, {{"a", 12}, {"b", 128}}};
  const Topology topology = *Topology::Preset("dgx-h100");
  PlanOptions options;
  options.topology = topology;
  constexpr int kChains = testing::kSanitized ? 20 : 200;
  int moved = 0, near = 0;
  for (int round = 0; round < kChains; ++round) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(round));
    const auto& axes = meshes[random() % meshes.size()];
    const std::vector<int64_t> shape =
        random() % 2 == 0 ? std::vector<int64_t>{6144, 12288} : std::vector<int64_t>{5003, 7001};
    const auto layout = [&] { return LayoutOf(testing::RandomLayout(random, axes, shape), MeshText(axes)); };
    const Layout source = layout();
    const std::vector<ChainStep> chain = {{ChainStep::Kind::kMove, layout()}, {ChainStep::Kind::kMove, layout()}};
    INFO("seed " << seed << ", round " << round << ": " << MeshText(axes) << " " << ToString(source) << " -> "
                 << ToString(chain[0].to) << " -> " << ToString(chain[1].to));
    transfers::ShardMaps maps({source});
    const auto priced = cost::Price(source, chain, DType::kBF16, options, maps);
    REQUIRE(priced.ok());
    const int64_t sampled = cost::TimeAtLeast(source, chain, DType::kBF16, topology, maps);
    CHECK(sampled <= priced->totals.time_ns);
    moved += priced->totals.time_ns > 0;
    near += sampled > priced->totals.time_ns / 2;
  }
  CHECK(near > moved / 2);  // it says something
}

}  // namespace
}  // namespace reshard
