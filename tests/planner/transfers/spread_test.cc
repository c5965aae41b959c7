// Exchanges whose holders take turns by whole digits, against the list of all pieces and against their own messages.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "planner/digits/digits.h"
#include "planner/digits/domains.h"
#include "planner/transfers/list_transfers.h"
#include "planner/transfers/mesh_transfers.h"
#include "planner/transfers/shard_maps.h"
#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/planner/candidates/chains.h"
#include "tests/property.h"
#include "tests/sanitized.h"
#include "tests/topologies.h"

namespace reshard::transfers {
namespace {

using Senders = MeshTransfers::Senders;
using testing::Axis;
using testing::LayoutOf;
using testing::MeshText;
using testing::OfDomains;
using testing::RandomLayout;

// Both layouts' tables, and the exchange between them.
struct Ends {
  Ends(const Layout& source, const Layout& target)
      : from(source), to(target), from_map(*ShardMap::Create(source)), to_map(*ShardMap::Create(target)) {
    for (int d = 0; d < source.rank(); ++d) {
      from_dims.push_back(&from_map.dim(d));
      to_dims.push_back(&to_map.dim(d));
    }
  }
  std::unique_ptr<MeshTransfers> Spread(const Topology& topology) const {
    const auto levels = digits::LevelsOf(from.mesh(), topology);
    const auto refinement = digits::Refine(from, to, &*levels);
    const int n = topology.num_levels();
    const auto by_place = MeshTransfers::Create(from.mesh(), *refinement, from_dims, to_dims, from.rank(), n);
    const auto finer = digits::Refine(from, to, &*levels, by_place->CutsToSpread());
    return MeshTransfers::Create(from.mesh(), finer ? *finer : *refinement, from_dims, to_dims, from.rank(), n,
                                 Senders::kAll);
  }
  std::unique_ptr<ListTransfers> Listed(const Topology& topology) const {
    return *ListTransfers::Create({&from.mesh(), from_dims}, {&to.mesh(), to_dims}, from.rank(), nullptr, topology, 0,
                                  transfers::Asked::kAll);
  }

  Layout from, to;
  ShardMap from_map, to_map;
  std::vector<const DimShards*> from_dims, to_dims;
};

// The runs of a message say which shard it comes from; two holders of that shard would send the same.
using Piece = std::vector<std::vector<std::pair<int64_t, int64_t>>>;
Piece PieceOf(const Message& message) {
  Piece out;
  for (const auto& dim : message.runs) {
    auto& runs = out.emplace_back();
    for (const Run& run : dim) runs.emplace_back(run.global, run.length);
  }
  return out;
}

int64_t Busiest(const TransferSchedule& transfers) {
  int64_t most = 0;
  for (const DeviceLoad& load : transfers.Loads()) {
    most = std::max(most, load.levels.empty() ? load.send : load.levels.back().send);
  }
  return most;
}

TEST_CASE("holders that take turns by digits send what the list says, from as near, and as evenly as digits allow") {
  const uint64_t seed = testing::Seed();
  const std::vector<std::vector<Axis>> meshes = {{{"a", 8}, {"b", 4}, {"c", 4}},
                                                 {{"a", 2}, {"b", 2}, {"c", 2}, {"d", 4}},
                                                 {{"a", 4}, {"b", 16}},
                                                 {{"a", 2}, {"b", 8}, {"c", 4}}};
  const std::vector<std::vector<int64_t>> shapes = {{64, 64}, {48, 36}, {37, 19}, {64}, {16, 9, 8}};
  const std::vector<std::vector<int64_t>> topologies = {{4}, {8}, {2, 8}, {}};
  int spread = 0, unbalanced = 0;
  constexpr int kRounds = testing::kSanitized ? 150 : 600;
  for (int round = 0; round < kRounds; ++round) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(round));
    const auto& axes = meshes[random() % meshes.size()];
    const Mesh mesh = *ParseMesh(MeshText(axes));
    const auto& shape = shapes[random() % shapes.size()];
    const Topology topology = OfDomains(topologies[random() % topologies.size()]);
    const Layout source = LayoutOf(RandomLayout(random, axes, shape), MeshText(axes));
    const Layout target = LayoutOf(RandomLayout(random, axes, shape), MeshText(axes));
    const Ends pair(source, target);
    INFO("seed " << seed << ", round " << round << ": " << ToString(mesh) << " " << ToString(pair.from) << " -> "
                 << ToString(pair.to) << ", levels " << topology.num_levels());
    const auto by_digits = pair.Spread(topology);
    const auto listed = pair.Listed(topology);
    std::map<int64_t, std::multiset<std::pair<int64_t, Piece>>> sent;
    int64_t wrong_level = 0;
    for (int64_t p = 0; p < mesh.size(); ++p) {
      const std::vector<Message> own = by_digits->Receives(p), expected = listed->Receives(p);
      REQUIRE(own.size() == expected.size());
      std::map<Piece, int64_t> senders;
      for (const Message& message : expected) senders.emplace(PieceOf(message), message.sender);
      DeviceLoad load;
      load.levels.resize(static_cast<size_t>(topology.num_levels()));
      for (const Message& message : own) {
        const auto it = senders.find(PieceOf(message));
        REQUIRE(it != senders.end());
        for (int d = 0; d < pair.from.rank(); ++d) {
          CHECK(pair.from_map.Row(message.sender, d) == pair.from_map.Row(it->second, d));
        }
        // The list takes the nearest holder.
        wrong_level += (message.sender == p) != (it->second == p) ||
                       topology.LevelOf(message.sender, p) != topology.LevelOf(it->second, p);
        sent[message.sender].emplace(p, PieceOf(message));
        if (message.sender == p) continue;
        load.recv += message.elements();
        load.levels[static_cast<size_t>(topology.LevelOf(message.sender, p))].recv += message.elements();
      }
      const DeviceLoad counted = by_digits->Load(p);
      CHECK(counted.recv == load.recv);
      for (size_t level = 0; level < counted.levels.size(); ++level) {
        CHECK(counted.levels[level].recv == load.levels[level].recv);
      }
    }
    CHECK(wrong_level == 0);
    for (int64_t p = 0; p < mesh.size(); ++p) {
      std::multiset<std::pair<int64_t, Piece>> said;
      int64_t elements = 0;
      for (const Message& message : by_digits->Sends(p)) {
        said.emplace(message.receiver, PieceOf(message));
        if (message.receiver != p) elements += message.elements();
      }
      CHECK(said == sent[p]);
      CHECK(by_digits->Load(p).send == elements);
    }
    ++spread;
    // Digits cannot take turns where their sizes have nothing in common, or where the nearest holders are few.
    unbalanced += Busiest(*by_digits) > 2 * Busiest(*listed);
  }
  CHECK(spread == kRounds);
  CAPTURE(unbalanced);
  CHECK(unbalanced <= 6);
}

TEST_CASE("the messages of a step are those of its schedule") {
  const uint64_t seed = testing::Seed();
  const std::vector<std::vector<Axis>> meshes = {{{"a", 8}, {"b", 4}}, {{"a", 2}, {"b", 3}, {"c", 4}}, {{"a", 16}}};
  const std::vector<std::vector<int64_t>> shapes = {{64, 64}, {37, 19}, {16}, {16, 9, 8}};
  const std::vector<std::vector<int64_t>> topologies = {{4}, {8}, {2, 8}, {3}, {}};
  int moving = 0;
  for (uint64_t round = 0; round < 300; ++round) {
    std::mt19937_64 random(seed + round);
    const auto& axes = meshes[random() % meshes.size()];
    const auto& shape = shapes[random() % shapes.size()];
    const Topology topology = OfDomains(topologies[random() % topologies.size()]);
    Step step;
    step.op = random() % 2 == 0 ? Op::kExchange : Op::kAllPermute;
    step.first_holder = static_cast<int64_t>(random() % 3);
    step.from = LayoutOf(RandomLayout(random, axes, shape), MeshText(axes));
    const bool elsewhere = step.op == Op::kExchange && random() % 4 == 0;
    step.to = LayoutOf(RandomLayout(random, axes, shape), MeshText(axes) + (elsewhere ? "@5" : ""));
    INFO("seed " << seed << ", round " << round << ": " << ToString(step.from) << " -> " << ToString(step.to));
    ShardMaps maps({});
    const auto messages = CreateMessages(step, topology, maps);
    const auto schedule = TransferSchedule::Create(step, topology);
    REQUIRE(messages.ok());
    REQUIRE(schedule.ok());
    for (int64_t device = 0; device < step.from.mesh().size() + 6; ++device) {
      CHECK((*messages)->Receives(device) == (*schedule)->Receives(device));
      CHECK((*messages)->Sends(device) == (*schedule)->Sends(device));
      const auto only = CreateMessages(step, topology, maps, device);
      REQUIRE(only.ok());
      CHECK((*only)->Receives(device) == (*schedule)->Receives(device));
      CHECK((*only)->Sends(device) == (*schedule)->Sends(device));
      moving += (*messages)->Receives(device).size() > 1;
    }
  }
  CHECK(moving > 1000);
}

TEST_CASE("what a plan over many devices costs follows from few of them") {
  // All in which a rule of digits in the receiver's place would leave holders idle.
  for (const auto& [mesh, from, to] : std::vector<std::array<const char*, 3>>{
           {"{a:128,b:32,c:16}", "[<a>131072, <c>65536]", "[<c>131072, <b>65536]"},
           {"{a:128,b:128,c:4}", "[<c>65536, 65536]", "[<a>65536, <c>65536]"},
           {"{a:64,b:4,c:128,d:2}", "[<b,d>131072, 65536, 1]", "[<c,d>131072, <b>65536, 1]"},
           {"{a:16,b:4,c:32,d:32}", "[<a>131072, <b,d>65536]", "[131072, <c>65536]"},
       }) {
    INFO(mesh << " " << from << " -> " << to);
    const Topology topology = *Topology::Preset("dgx-h100");
    const auto transfers = TransferSchedule::Create(Op::kExchange, LayoutOf(from, mesh), LayoutOf(to, mesh), topology);
    REQUIRE(transfers.ok());
    // A schedule that lists messages has none.
    CHECK((*transfers)->Links() != nullptr);
    // Nobody sends far more across than the devices do on average.
    int64_t across = 0, devices = 0;
    for (const DeviceLoad& load : (*transfers)->Loads()) {
      across += load.levels.back().send;
      ++devices;
    }
    CHECK(Busiest(**transfers) <= across / devices * 3 / 2);
  }
}

}  // namespace
}  // namespace reshard::transfers
