// Plans across nodes: every link carries what the nodes lack and no more, on every pair of box layouts.
#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "tests/layouts.h"
#include "tests/oracle/plan_check.h"
#include "tests/oracle_of.h"
#include "tests/property.h"
#include "tests/property/checked.h"
#include "tests/property/facts.h"
#include "tests/property/problems.h"
#include "tests/sanitized.h"

namespace reshard::testing {
namespace {

// All ways to put ordered subsets of the axes on `rank` dimensions: "[<n,g>64, 64]", ...
void AllLayouts(const std::vector<std::string>& axes, size_t next, std::vector<std::vector<std::string>>& dims,
                int64_t size, std::vector<std::string>& out) {
  if (next == axes.size()) {
    std::string text = "[";
    for (const auto& dim : dims) {
      absl::StrAppend(&text, text.size() > 1 ? ", " : "", dim.empty() ? "" : "<");
      for (size_t i = 0; i < dim.size(); ++i) absl::StrAppend(&text, i > 0 ? "," : "", dim[i]);
      absl::StrAppend(&text, dim.empty() ? "" : ">", size);
    }
    out.push_back(text + "]");
    return;
  }
  AllLayouts(axes, next + 1, dims, size, out);
  for (auto& dim : dims) {
    for (size_t at = 0; at <= dim.size(); ++at) {
      dim.insert(dim.begin() + static_cast<std::ptrdiff_t>(at), axes[next]);
      AllLayouts(axes, next + 1, dims, size, out);
      dim.erase(dim.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
}

std::vector<Layout> LayoutsOf(const std::string& mesh_text, const std::vector<std::string>& axes, size_t rank,
                              int64_t size) {
  std::vector<std::vector<std::string>> dims(rank);
  std::vector<std::string> texts;
  AllLayouts(axes, 0, dims, size, texts);
  const auto mesh = MeshOf(mesh_text);
  std::vector<Layout> out;
  for (const std::string& text : texts) out.push_back(*ParseLayout(text, mesh));
  return out;
}

Topology Nodes(int64_t gpus) { return {"nodes", {{gpus, 400'000'000'000, 3000, 0}, {0, 50'000'000'000, 12000, 0}}}; }

// What enters a node that the devices of the node need and none holds, counted element by element.
int64_t NodeCut(const oracle::Holdings& from, const oracle::Holdings& to, int64_t gpus) {
  int64_t most = 0;
  std::map<int64_t, std::pair<oracle::ElementSet, oracle::ElementSet>> nodes;  // held, needed
  for (size_t i = 0; i < from.sets.size(); ++i) {
    const oracle::ElementSet none(from.elements);
    auto& [held, needed] = nodes.try_emplace(from.layout.mesh.ids[i] / gpus, none, none).first->second;
    held.Merge(from.sets[i]);
    needed.Merge(to.sets[i]);
  }
  for (const auto& [node, sets] : nodes) {
    most = std::max(most, sets.second.Count() - sets.second.CountCommon(sets.first));
  }
  return most;
}

// What nodes that hold the same must send through each of their links, counted element by element.
int64_t LinkSends(const oracle::Holdings& from, const oracle::Holdings& to, int64_t gpus) {
  const auto nodes_of = [&](const oracle::Holdings& side, int64_t element) {
    std::set<int64_t> nodes;
    for (size_t i = 0; i < side.sets.size(); ++i) {
      if (side.sets[i].Contains(element)) nodes.insert(side.layout.mesh.ids[i] / gpus);
    }
    return nodes;
  };
  std::map<std::set<int64_t>, int64_t> leaving;  // by the nodes that hold it
  for (int64_t element = 0; element < from.elements; ++element) {
    const std::set<int64_t> holding = nodes_of(from, element), needing = nodes_of(to, element);
    if (!std::includes(holding.begin(), holding.end(), needing.begin(), needing.end())) ++leaving[holding];
  }
  int64_t most = 0;
  for (const auto& [nodes, elements] : leaving) {
    most = std::max(most, CeilDiv(elements, static_cast<int64_t>(nodes.size()) * gpus));
  }
  return most;
}

// The axes that no dimension uses, every non-empty subset of them partial.
std::vector<Layout> WithPartialAxes(const Layout& layout) {
  std::vector<AxisRef> free;
  for (int a = 0; a < layout.mesh().num_axes(); ++a) {
    bool used = false;
    for (const DimLayout& dim : layout.dims()) {
      for (const Factor& factor : dim.factors) used |= factor.has_axis() && factor.axis.axis == a;
    }
    if (!used) free.push_back({a, 1, layout.mesh().axis(a).size});
  }
  std::vector<Layout> out;
  for (unsigned subset = 1; subset < 1u << free.size(); ++subset) {
    Partial partial{ReduceOp::kSum, {}};
    for (size_t i = 0; i < free.size(); ++i) {
      if ((subset >> i & 1u) != 0) partial.axes.push_back(free[i]);
    }
    out.push_back(*Layout::Create(layout.mesh(), layout.dims(), partial));
  }
  return out;
}

void CheckPair(const Layout& from, const Layout& to, int64_t gpus, bool by_element) {
  INFO(ToString(from.mesh()) << " " << ToString(from) << " -> " << ToString(to));
  PlanOptions options;
  options.topology = Nodes(gpus);
  options.objective = Objective::kBytes;
  const auto plan = MakePlan({from, to, DType::kI8}, options);
  REQUIRE(plan.ok());
  CHECK(Disagreement(*plan) == "");
  if (plan->steps.empty()) return;
  REQUIRE(plan->bounds.levels.size() == 2);
  const LevelBound& bound = plan->bounds.levels[1];
  CHECK(plan->totals.levels[1].recv_bytes_max == bound.nic_recv_bytes_max);
  CHECK(plan->totals.levels[1].nic_bytes_max == bound.nic_recv_bytes_max);
  CHECK(bound.nic_bytes_max == bound.nic_recv_bytes_max);
  CHECK(plan->totals.intermediate_bytes_max <= plan->bounds.intermediate_bytes_max);
  const oracle::Holdings source = HoldingsOf(from), target = HoldingsOf(to);
  if (!from.partial()) CHECK(bound.island_recv_bytes_max == NodeCut(source, target, gpus));
  if (!by_element) return;
  const auto facts = FactsOf(*plan);
  REQUIRE(facts.ok());
  const auto wrong = oracle::Check(*facts);
  CHECK(absl::StrJoin(wrong, "; ") == "");
}

// Meshes of nodes, and the devices of a node.
constexpr std::pair<const char*, int64_t> kNodes[] = {
    {"{nodes:2,gpus:4}", 4}, {"{nodes:4,gpus:4}", 4}, {"{nodes:2,gpus:8}", 8}};

}  // namespace

TEST_CASE("every link between nodes carries its share of the node cut: all pairs of rank 2") {
  for (const auto& [mesh, gpus] : kNodes) {
    const auto layouts = LayoutsOf(mesh, {"nodes", "gpus"}, 2, 64);
    for (const Layout& from : layouts) {
      for (const Layout& to : layouts) CheckPair(from, to, gpus, true);
    }
  }
}

TEST_CASE("every link between nodes carries its share of the node cut: pairs of rank 3, and axes that straddle nodes") {
  struct World {
    const char* mesh;
    std::vector<std::string> axes;
    int64_t gpus;
  };
  const std::vector<World> worlds = {
      {"{nodes:2,gpus:4}", {"nodes", "gpus"}, 4},
      {"{nodes:4,gpus:4}", {"nodes", "gpus"}, 4},
      {"{nodes:2,gpus:8}", {"nodes", "gpus"}, 8},
      {"{a:4,b:4}", {"a", "b"}, 8},
      {"{a:2,b:8}", {"a", "b"}, 4},
      {"{a:2,b:2,c:4}", {"a", "b", "c"}, 4},
      {"{gpus:4,nodes:2}@[0,4,1,5,2,6,3,7]", {"gpus", "nodes"}, 4},
  };
  const uint64_t seed = Seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (const World& world : worlds) {
    const auto layouts = LayoutsOf(world.mesh, world.axes, 3, 16);
    for (int i = 0; i < 150; ++i) {
      CheckPair(layouts[random() % layouts.size()], layouts[random() % layouts.size()], world.gpus, i % 5 == 0);
    }
  }
}

TEST_CASE("where sizes do not divide, domains that hold the same have to send what only they hold") {
  const uint64_t seed = Seed();
  int checked = 0;
  int more = 0;  // have to send more than they receive
  constexpr int kPairs = kSanitized ? 100 : 1000;
  for (int round = 0; round < kPairs; ++round) {
    Choices choices(seed + static_cast<uint64_t>(round));
    const RandomProblem problem =
        MakeProblem(choices, {.uneven = true, .sub_axes = true, .digits = true, .sizes = true});
    const auto parsed = ParseMesh(problem.mesh);
    REQUIRE(parsed.ok());
    const int64_t gpus = 2;
    if (parsed->size() % gpus != 0) continue;
    const Layout from = *ParseLayout(problem.from, *parsed), to = *ParseLayout(problem.to, *parsed);
    INFO("seed " << seed << ", round " << round << ": " << problem.Text());
    PlanOptions options;
    options.topology = Nodes(gpus);
    options.objective = Objective::kBytes;
    const auto plan = MakePlan({from, to, DType::kI8}, options);
    REQUIRE(plan.ok());
    REQUIRE(Disagreement(*plan) == "");
    if (plan->bounds.levels.empty()) continue;  // the nodes are not sub-meshes
    const LevelBound& bound = plan->bounds.levels[1];
    const oracle::Holdings source = HoldingsOf(from), target = HoldingsOf(to);
    const int64_t received = CeilDiv(NodeCut(source, target, gpus), gpus);
    const int64_t sent = LinkSends(source, target, gpus);
    REQUIRE(bound.nic_recv_bytes_max == received);
    REQUIRE(bound.nic_bytes_max == std::max(received, sent));
    REQUIRE(plan->totals.levels[1].nic_bytes_max >= bound.nic_bytes_max);
    ++checked;
    more += sent > received ? 1 : 0;
  }
  CHECK(checked > kPairs / 4);
  CHECK(more > kPairs / 100);
}

TEST_CASE("every link between nodes carries its share of a reduction: all pairs of rank 2") {
  for (const auto& [mesh, gpus] : kNodes) {
    const auto layouts = LayoutsOf(mesh, {"nodes", "gpus"}, 2, 64);
    for (const Layout& placed : layouts) {
      for (const Layout& from : WithPartialAxes(placed)) {
        for (const Layout& to : layouts) CheckPair(from, to, gpus, gpus == 4);
      }
    }
  }
}

TEST_CASE("with three levels the outermost links carry their share of the cut") {
  const auto layouts = LayoutsOf("{racks:2,nodes:2,gpus:2}", {"racks", "nodes", "gpus"}, 2, 16);
  PlanOptions options;
  options.topology = {"racks",
                      {{2, 400'000'000'000, 3000, 0}, {4, 100'000'000'000, 6000, 0}, {0, 25'000'000'000, 12000, 0}}};
  options.objective = Objective::kBytes;
  int checked = 0;
  for (size_t i = 0; i < layouts.size(); ++i) {
    for (size_t j = 0; j < layouts.size(); ++j) {
      const auto plan = MakePlan({layouts[i], layouts[j], DType::kI8}, options);
      REQUIRE(plan.ok());
      if (plan->steps.empty()) continue;
      INFO(ToString(layouts[i]) << " -> " << ToString(layouts[j]));
      REQUIRE(plan->bounds.levels.size() == 3);
      CHECK(plan->totals.levels[2].nic_bytes_max == plan->bounds.levels[2].nic_recv_bytes_max);
      if (++checked % 10 != 0) continue;
      CHECK(Disagreement(*plan) == "");
      const auto facts = FactsOf(*plan);
      REQUIRE(facts.ok());
      CHECK(absl::StrJoin(oracle::Check(*facts), "; ") == "");
    }
  }
  CHECK(checked > 2000);
}

}  // namespace reshard::testing
