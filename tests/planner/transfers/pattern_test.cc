// Which op a movement is, and along which axes, against the oracle's definitions of the ops.
#include <algorithm>
#include <map>
#include <random>

#include "absl/strings/str_join.h"
#include "planner/transfers/mesh_transfers.h"
#include "reshard/planner/traffic.h"
#include "tests/catch.h"
#include "tests/layouts.h"
#include "tests/oracle/plan_check.h"
#include "tests/oracle_of.h"
#include "tests/planner/candidates/chains.h"

namespace reshard {
namespace {

using testing::HoldingsOf;
using testing::LayoutOf;

const std::vector<Op>& Movers() {
  static const auto* ops =
      new std::vector<Op>{Op::kSlice, Op::kAllGather, Op::kAllToAll, Op::kAllPermute, Op::kExchange};
  return *ops;
}

// The elements of a message, one by one.
void AddElements(const oracle::Holdings& holdings, const Message& message, oracle::ElementSet& set) {
  std::vector<std::vector<int64_t>> indices = {{}};
  for (const std::vector<Run>& runs : message.runs) {
    std::vector<std::vector<int64_t>> longer;
    for (const std::vector<int64_t>& index : indices) {
      for (const Run& run : runs) {
        for (int64_t i = 0; i < run.length; ++i) {
          longer.push_back(index);
          longer.back().push_back(run.global + i);
        }
      }
    }
    indices = std::move(longer);
  }
  for (const std::vector<int64_t>& index : indices) set.Insert(holdings.Number(index));
}

// What travels, by the transfers's own messages.
struct Travels {
  Travels(const Layout& from_layout, const Layout& to_layout, const TransferSchedule& transfers)
      : from(HoldingsOf(from_layout)), to(HoldingsOf(to_layout)) {
    movement.from = &from;
    movement.to = &to;
    const oracle::Mesh& mesh = from.layout.mesh;
    for (const AxisRef& ref : transfers.Axes()) {
      movement.axes.push_back(oracle::ParseRef(ToString(from_layout.mesh(), ref), mesh));
    }
    for (int64_t q = 0; q < to_layout.mesh().size(); ++q) {
      auto& row = movement.received.emplace_back(from.sets.size(), oracle::ElementSet(to.elements));
      for (const Message& message : transfers.Receives(to_layout.mesh().Device(q))) {
        if (message.sender == message.receiver) continue;
        const int64_t p = mesh.Position(message.sender);
        AddElements(to, message, row[p]);
        moved.emplace_back(p, q);
      }
    }
  }
  oracle::Holdings from, to;
  oracle::Movement movement;
  std::vector<std::pair<int64_t, int64_t>> moved;  // positions
};

// Empty when the transfers's op is the first whose definition is met, and its axes are those along which things travel.
std::string WrongPattern(const Layout& from, const Layout& to, const TransferSchedule& transfers) {
  const Travels travels(from, to, transfers);
  const oracle::Mesh& mesh = travels.from.layout.mesh;
  const std::vector<int64_t> keys = oracle::GroupKeys(mesh, travels.movement.axes);
  int64_t group = 1;
  for (const oracle::Ref& ref : travels.movement.axes) {
    group *= ref.size;
    const bool needed = std::any_of(travels.moved.begin(), travels.moved.end(), [&](const auto& pair) {
      return oracle::Coordinate(mesh, ref, pair.first) != oracle::Coordinate(mesh, ref, pair.second);
    });
    if (!needed) return "nothing travels along an axis that is named";
  }
  if (group != transfers.GroupSize()) return "the group's size is not the product of its axes";
  for (const auto& [p, q] : travels.moved) {
    if (keys[p] != keys[q]) return "something leaves its group";
  }
  // Where some devices hold nothing the same pattern may come about by several names: only that it is one of them.
  const auto empty = [](const oracle::ElementSet& set) { return set.Count() == 0; };
  const bool some_empty = std::any_of(travels.from.sets.begin(), travels.from.sets.end(), empty) ||
                          std::any_of(travels.to.sets.begin(), travels.to.sets.end(), empty);
  if (some_empty) return oracle::BreaksDefinition(std::string(Name(transfers.Classify())), travels.movement);
  for (const Op op : Movers()) {
    if (!oracle::BreaksDefinition(std::string(Name(op)), travels.movement).empty()) continue;
    return op == transfers.Classify() ? "" : "it is " + std::string(Name(op));
  }
  return "it is nothing";
}

}  // namespace

TEST_CASE("small movements have their names") {
  struct Case {
    const char *from, *to;
    Op op;
    const char* axes;
  };
  const std::vector<Case> cases = {
      {"[16, 8]", "[<X>16, 8]", Op::kSlice, ""},
      {"[<X>16, 8]", "[<X,Y>16, 8]", Op::kSlice, ""},
      {"[<X>16, 8]", "[16, 8]", Op::kAllGather, "X"},
      {"[<X,Y>16, 8]", "[<X>16, 8]", Op::kAllGather, "Y"},
      {"[<X>5, 8]", "[5, 8]", Op::kAllGather, "X"},
      {"[<X>16, 8]", "[16, <X>8]", Op::kAllToAll, "X"},
      {"[<X,Y>16, 8]", "[<Y>16, <X>8]", Op::kExchange, "X,Y"},
      {"[<X:(2)2>16, 8]", "[16, <X:(2)2>8]", Op::kAllToAll, "X:(2)2"},
      {"[<X,Y>16, 8]", "[<Y,X>16, 8]", Op::kAllPermute, "X,Y"},
      {"[<X>16, 8]", "[<~X>16, 8]", Op::kSlice, ""},
      {"[<X=[4,4,4,4]>16, 8]", "[<X=[4,4,8,0]>16, 8]", Op::kExchange, "X"},
      {"[<X>16, 8]", "[<X=[7,3,3,3]>16, 8]", Op::kExchange, "X"},
      {"[<2,X>16, 8]", "[<X>16, 8]", Op::kExchange, "X"},
      // Blocks are cut by nobody: Y and half of X are not at one place.
      {"[<Y,8>16, 8]", "[<8,X:(1)2>16, 8]", Op::kAllToAll, "Y"},
  };
  for (const Case& c : cases) {
    const Layout from = LayoutOf(c.from, "{X:4,Y:2}"), to = LayoutOf(c.to, "{X:4,Y:2}");
    const auto transfers = TransferSchedule::Create(Op::kExchange, from, to).value();
    INFO(c.from << " -> " << c.to << " is " << std::string(Name(transfers->Classify())));
    CHECK(dynamic_cast<const transfers::MeshTransfers*>(transfers.get()) != nullptr);
    CHECK(transfers->Classify() == c.op);
    CHECK(absl::StrJoin(transfers->Axes(), ",", [&](std::string* out, const AxisRef& ref) {
            out->append(ToString(from.mesh(), ref));
          }) == c.axes);
    CHECK(WrongPattern(from, to, *transfers) == "");
  }
}

TEST_CASE("random movements are the first op whose definition they meet, along the fewest axes") {
  const uint64_t seed = testing::Seed();
  std::mt19937_64 random(seed);
  std::map<Op, int> seen;
  for (int i = 0; i < 1500; ++i) {
    const std::vector<testing::Axis> axes = {{"X", 2 + i % 3}, {"Y", 2}, {"Z", 1 + i % 2}};
    const std::vector<int64_t> shape = testing::RandomShape(random, i % 4 == 0);
    const Layout from =
        LayoutOf(testing::RandomLayout(random, axes, shape, {.blocks = i % 3 == 0}), testing::MeshText(axes));
    const Layout to =
        LayoutOf(testing::RandomLayout(random, axes, shape, {.blocks = i % 3 == 0}), testing::MeshText(axes));
    const auto transfers = TransferSchedule::Create(Op::kExchange, from, to).value();
    INFO("seed " << seed << ", " << i << ": " << ToString(from.mesh()) << " " << ToString(from) << " -> "
                 << ToString(to) << " is " << std::string(Name(transfers->Classify())));
    REQUIRE(WrongPattern(from, to, *transfers) == "");
    if (dynamic_cast<const transfers::MeshTransfers*>(transfers.get()) != nullptr) ++seen[transfers->Classify()];
  }
  for (const Op op : Movers()) {
    INFO(std::string(Name(op)));
    CHECK(seen[op] > 10);
  }
}

}  // namespace reshard
