// Plans between slot tables: experts with replicas, on nodes of several devices. What must be received and what must
// cross is counted from the tables alone.
#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reshard/planner/planner.h"
#include "tests/layouts.h"
#include "tests/property.h"
#include "tests/property/checked.h"

namespace reshard::testing {
namespace {

using Table = std::vector<std::vector<int64_t>>;  // per device, the expert in each slot

constexpr int64_t kExpertBytes = 8 << 20;

// Every expert somewhere, the rest of the slots at random; no device holds an expert twice.
Table RandomTable(std::mt19937_64& random, int64_t devices, int64_t experts, int64_t slots_each) {
  Table table(static_cast<size_t>(devices));
  std::vector<int64_t> order(static_cast<size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  for (size_t i = 0; i < order.size(); ++i) table[i % table.size()].push_back(order[i]);
  for (std::vector<int64_t>& mine : table) {
    while (static_cast<int64_t>(mine.size()) < slots_each) {
      const int64_t expert = static_cast<int64_t>(random() % static_cast<uint64_t>(experts));
      if (std::find(mine.begin(), mine.end(), expert) == mine.end()) mine.push_back(expert);
    }
    std::shuffle(mine.begin(), mine.end(), random);
  }
  return table;
}

std::string Text(const Table& table, int64_t experts) {
  std::vector<std::string> lists;
  for (const auto& mine : table) lists.push_back(absl::StrJoin(mine, ","));
  return absl::StrCat("[<ep={", absl::StrJoin(lists, "|"), "}>", experts, ", ", kExpertBytes, "]");
}

// Experts that the devices of a group of `size` need and none of them has, over all groups: the most of one, and all.
std::pair<int64_t, int64_t> Lack(const Table& before, const Table& after, size_t size) {
  int64_t most = 0, total = 0;
  for (size_t first = 0; first < before.size(); first += size) {
    std::set<int64_t> needed, held;
    for (size_t i = first; i < std::min(first + size, before.size()); ++i) {
      needed.insert(after[i].begin(), after[i].end());
      held.insert(before[i].begin(), before[i].end());
    }
    int64_t lacks = 0;
    for (const int64_t expert : needed) lacks += held.contains(expert) ? 0 : 1;
    most = std::max(most, lacks);
    total += lacks;
  }
  return {most, total};
}

Topology Nodes(int64_t gpus) { return {"nodes", {{gpus, 400'000'000'000, 3000, 0}, {0, 50'000'000'000, 12000, 0}}}; }

// The plan by bytes is at the bound of devices and of nodes; its JSON is what the judge derives.
void AtTheBound(const Table& before, const Table& after, int64_t experts, int64_t gpus) {
  const auto devices = static_cast<int64_t>(before.size());
  const std::string mesh = absl::StrCat("{ep:", devices, "}");
  const auto from = ParseLayout(Text(before, experts), mesh), to = ParseLayout(Text(after, experts), mesh);
  REQUIRE(from.ok());
  REQUIRE(to.ok());
  PlanOptions options;
  options.objective = Objective::kBytes;
  options.topology = gpus == 1 ? Topology::Flat() : Nodes(gpus);
  const auto plan = MakePlan({*from, *to, DType::kU8}, options);
  REQUIRE(plan.ok());
  const auto [worst, total] = Lack(before, after, 1);
  CHECK(plan->bounds.recv_bytes_max == worst * kExpertBytes);
  CHECK(plan->bounds.recv_bytes_total == total * kExpertBytes);
  CHECK(plan->totals.recv_bytes_max == worst * kExpertBytes);
  CHECK(plan->totals.recv_bytes_total == total * kExpertBytes);
  if (gpus > 1) {
    const auto [node_worst, node_total] = Lack(before, after, static_cast<size_t>(gpus));
    REQUIRE(plan->bounds.levels.size() == 2);
    CHECK(plan->bounds.levels[1].island_recv_bytes_max == node_worst * kExpertBytes);
    CHECK(plan->bounds.levels[1].recv_bytes_total == node_total * kExpertBytes);
    CHECK(plan->totals.levels[1].recv_bytes_total == node_total * kExpertBytes);
  }
  const std::string wrong = Disagreement(*plan);
  INFO(wrong);
  CHECK(wrong.empty());
}

}  // namespace

TEST_CASE("rebalanced experts: no device and no node receives an expert twice or in vain") {
  std::mt19937_64 random(Seed());
  for (int trial = 0; trial < 1000; ++trial) {
    INFO("seed " << Seed() << ", trial " << trial);
    const int64_t gpus = int64_t{1} << (random() % 4);
    const bool is_large = trial % 8 == 0;  // up to 64 devices and 512 experts
    const int64_t devices = gpus * (8 / gpus) * (1 + static_cast<int64_t>(random() % (is_large ? 8 : 3)));
    const int64_t experts = std::max<int64_t>(devices, 64 + static_cast<int64_t>(random() % (is_large ? 449 : 192)));
    const int64_t slots = (experts + devices - 1) / devices + static_cast<int64_t>(random() % 3);
    AtTheBound(RandomTable(random, devices, experts, slots), RandomTable(random, devices, experts, slots), experts,
               gpus);
  }
}

// The least that the busiest of `senders` sends, where each request goes to one of its candidates: all ways are tried.
int64_t LeastBusiest(const std::vector<std::vector<size_t>>& requests, size_t senders) {
  int64_t best = static_cast<int64_t>(requests.size());
  std::vector<int64_t> loads(senders, 0);
  const std::function<void(size_t, int64_t)> place = [&](size_t next, int64_t busiest) {
    if (busiest >= best) return;
    if (next == requests.size()) {
      best = busiest;
      return;
    }
    for (const size_t sender : requests[next]) {
      ++loads[sender];
      place(next + 1, std::max(busiest, loads[sender]));
      --loads[sender];
    }
  };
  place(0, 0);
  return best;
}

bool Holds(const Table& table, size_t device, int64_t expert) {
  return std::find(table[device].begin(), table[device].end(), expert) != table[device].end();
}

// For what a device (a node) lacks: the devices that could send it, and those that could take it first.
struct Crossings {
  std::vector<std::vector<size_t>> senders, takers;
};

Crossings CrossingsOf(const Table& before, const Table& after, size_t size, int64_t experts) {
  Crossings out;
  for (size_t first = 0; first < before.size(); first += size) {
    for (int64_t expert = 0; expert < experts; ++expert) {
      std::vector<size_t> senders, takers;
      bool is_there = false;
      for (size_t device = 0; device < before.size(); ++device) {
        const bool is_inside = device >= first && device < first + size;
        if (Holds(before, device, expert)) {
          is_there |= is_inside;
          if (!is_inside) senders.push_back(device);
        }
        if (is_inside && Holds(after, device, expert)) takers.push_back(device);
      }
      if (is_there || takers.empty()) continue;
      out.senders.push_back(std::move(senders));
      out.takers.push_back(std::move(takers));
    }
  }
  return out;
}

TEST_CASE("rebalanced experts on few devices: no other choice of senders keeps the busiest link idler") {
  std::mt19937_64 random(Seed());
  for (int trial = 0; trial < 3000; ++trial) {
    INFO("seed " << Seed() << ", trial " << trial);
    const int64_t gpus = trial % 2 == 0 ? 1 : 2 + static_cast<int64_t>(random() % 2);  // of a node
    const int64_t devices =
        gpus == 1 ? 2 + static_cast<int64_t>(random() % 5) : gpus * (gpus == 2 ? 2 + random() % 2 : 2);
    const int64_t slots = 1 + static_cast<int64_t>(random() % 3);
    const int64_t experts =
        std::max(slots, 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(devices * slots)));
    const Table before = RandomTable(random, devices, experts, slots),
                after = RandomTable(random, devices, experts, slots);
    INFO(Text(before, experts) << " -> " << Text(after, experts));
    const std::string mesh = absl::StrCat("{ep:", devices, "}");
    PlanOptions options;
    options.objective = Objective::kBytes;
    options.topology = gpus == 1 ? Topology::Flat() : Nodes(gpus);
    const auto plan = MakePlan(
        {*ParseLayout(Text(before, experts), mesh), *ParseLayout(Text(after, experts), mesh), DType::kU8}, options);
    REQUIRE(plan.ok());
    const Crossings crossing = CrossingsOf(before, after, static_cast<size_t>(gpus), experts);
    const int64_t busiest = LeastBusiest(crossing.senders, before.size());
    if (gpus == 1) {
      REQUIRE(plan->steps.size() <= 1);
      CHECK((plan->steps.empty() ? 0 : plan->steps[0].send_bytes_max) == busiest * kExpertBytes);
    } else {
      const int64_t taken = LeastBusiest(crossing.takers, before.size());
      CHECK(plan->totals.levels[1].nic_bytes_max == std::max(busiest, taken) * kExpertBytes);
    }
  }
}

TEST_CASE("every pair of small tables on three devices") {
  // Two slots for each of three devices, three experts.
  std::vector<Table> all;
  for (int code = 0; code < 729; ++code) {
    Table table(3);
    int rest = code;
    for (int slot = 0; slot < 6; ++slot, rest /= 3) table[static_cast<size_t>(slot) / 2].push_back(rest % 3);
    std::set<int64_t> held;
    bool twice = false;
    for (const auto& mine : table) {
      held.insert(mine.begin(), mine.end());
      twice |= mine[0] == mine[1];
    }
    if (held.size() == 3 && !twice) all.push_back(table);
  }
  REQUIRE(all.size() == 192);
  for (size_t i = 0; i < all.size(); i += 3) {
    for (size_t j = 0; j < all.size(); j += 2) {
      if (all[i] == all[j]) continue;
      INFO(Text(all[i], 3) << " -> " << Text(all[j], 3));
      AtTheBound(all[i], all[j], 3, 1);
    }
  }
}

}  // namespace reshard::testing
