// The network as a group of ranks sees it.
#include "reshard/torch/topology.h"

#include <vector>

#include "tests/catch.h"

namespace reshard {
namespace {

// Devices of a domain, level by level.
std::vector<int64_t> LocalityDomains(const Topology& topology) {
  std::vector<int64_t> domains;
  for (const Topology::Level& level : topology.levels) domains.push_back(level.devices);
  return domains;
}

using Sizes = std::vector<int64_t>;

TEST_CASE("a group sees the domains that its ranks make") {
  const Topology nodes{"nodes", {{8, 100, 1, 0}, {0, 10, 1, 4}}};
  const Topology racks{"racks", {{4, 100, 1, 0}, {16, 10, 1, 0}, {0, 1, 1, 0}}};
  CHECK(OnRanks(nodes, std::vector<int64_t>{0, 1, 2, 3}) == nodes);
  CHECK(LocalityDomains(OnRanks(nodes, std::vector<int64_t>{8, 9, 16, 17})) == Sizes{2, 0});
  CHECK(LocalityDomains(OnRanks(nodes, std::vector<int64_t>{3, 11, 19})) == Sizes{1, 0});
  CHECK(LocalityDomains(OnRanks(nodes, std::vector<int64_t>{9, 10, 12})) == Sizes{3, 0});
  CHECK(LocalityDomains(OnRanks(nodes, std::vector<int64_t>{0, 1, 8})) == Sizes{2, 0});
  CHECK(LocalityDomains(OnRanks(racks, std::vector<int64_t>{0, 1, 4, 5, 16, 17, 20, 21})) == Sizes{2, 4, 0});
  CHECK(LocalityDomains(OnRanks(racks, std::vector<int64_t>{1, 2, 3, 4})) == Sizes{3, 6, 0});  // rounded
  SECTION("a level that is not runs of them is left out") {
    CHECK(LocalityDomains(OnRanks(nodes, std::vector<int64_t>{0, 8, 1, 9})) == Sizes{0});
    CHECK(LocalityDomains(OnRanks(nodes, std::vector<int64_t>{0, 8, 9})) == Sizes{0});
    CHECK(LocalityDomains(OnRanks(racks, std::vector<int64_t>{3, 4, 5, 16, 17, 18})) == Sizes{3, 0});
  }
  SECTION("devices keep their level") {
    const std::vector<int64_t> ranks = {8, 9, 16, 17};
    const Topology seen = OnRanks(nodes, ranks);
    for (size_t a = 0; a < ranks.size(); ++a) {
      for (size_t b = 0; b < ranks.size(); ++b) {
        CHECK(seen.LevelOf(static_cast<int64_t>(a), static_cast<int64_t>(b)) == nodes.LevelOf(ranks[a], ranks[b]));
      }
    }
    CHECK(seen.Validate().ok());
  }
  SECTION("no more links than devices") {
    CHECK(OnRanks(nodes, std::vector<int64_t>{8, 9, 16, 17}).levels[1].nics == 0);
    CHECK(OnRanks(nodes, std::vector<int64_t>{8, 9, 10, 11, 12, 13, 14, 15}).levels[1].nics == 4);
    CHECK(OnRanks(nodes, std::vector<int64_t>{8, 9, 10, 11, 12, 13}).levels[1].nics == 3);
  }
}

TEST_CASE("what is told is asked for by everybody") {
  const int64_t version = TopologyVersion();
  SetTopology(Topology::Preset("dgx-h100").value());
  CHECK(TopologyVersion() == version + 1);
  CHECK(ConfiguredTopology().value() == Topology::Preset("dgx-h100").value());
  SetTopology(std::nullopt);
  CHECK(TopologyVersion() == version + 2);
}

}  // namespace
}  // namespace reshard
