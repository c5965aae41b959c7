// Prints, as Markdown, how many bytes our plans move beside the plans of others: hard cases, sweeps over all pairs of
// small meshes, and two-level networks. Ours are computed now; theirs are constants with their source. The same output
// on every machine; progress and times go to stderr. docs/planning.md holds these tables.
//   bench_planners [--quick] [hard] [sweep] [levels] [uneven] [measured]      --quick: every 41st pair of the sweeps
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "tests/bench/box_layouts.h"

namespace reshard::bench {
namespace {

PlanOptions Bytes() {
  PlanOptions options;
  options.objective = Objective::kBytes;
  return options;
}

PlanOptions Named() {
  PlanOptions options = Bytes();
  options.ops = options.ops.without(Op::kExchange);
  return options;
}

PlanOptions Boxes() {
  PlanOptions options = Bytes();
  options.boxes_only = true;
  return options;
}

// ---- Hard cases ----

struct HardCase {
  const char* name;  // in tests/golden/cases.json
  const char* text;
  const char* greedy;
  const char* graph;
  const char* shardy;
  const char* xla;
};

// DTensor (torch 2.11.0 and 2.15.0, greedy and min-cost) and Shardy were run; a ratio in the XLA column was measured
// with JAX 0.10.2 and 0.12.0.1, words are read from its source.
const HardCase kHardCases[] = {
    {"A", "(R,S0)->(S1,S1), 16x8", "896, 8x memory", "7", "7", "optimal"},
    {"A2", "the same, 8x8", "896", "14", "14", "-"},
    {"B", "(S0,S1)->(S1,S0), 8x8", "224, 8x memory", "224", "16", "optimal"},
    {"B2", "the same, 16x8", "116", "116", "12", "-"},
    {"B3", "the same, rank 3", "116", "21.5", "12", "-"},
    {"C", "(S0,S0)->(R,S0), 8x8", "1008, 8x memory", "238", "128", "optimal"},
    {"C2/M", "S0[x]->S0[y], 8x8", "896, 8x memory", "224", "128", "permute"},
    {"D", "(R,R,S0)->(S1,S1,S1), 4x4x8", "896", "7", "7", "optimal"},
    {"E", "(S0,S0,S1)->(S0,S1,S2), 4x4x4", "24", "24", "28", "-"},
    {"F", "(R,S0,R,R)->(S1,R,S1,S1), 2x2x2x2", "512", "64", "64", "512"},
    {"J", "S0[dp,tp]->S0[tp,dp], 8x8", "not expressible", "238, 8x memory", "16", "optimal"},
    {"K", "S0[y] S2[x]->S1[x,y], 4x2", "-", "160", "160", "896, 8x memory"},
    {"K2", "the same, 16x8", "-", "14.5", "14.5", "1016, 128x memory"},
    {"L", "S1[tp,dp]->S0[dp,tp], 8x8", "-", "28", "31.75", "-"},
    {"N", "S1[y,z,x]->S0[x,y] S2[z], 4x2x4", "-", "64", "84", "32x the bound"},
    {"O", "S1[w1]->S0[w1,w2], 2x2", "-", "256", "192", "3x the bound"},
    {"P", "sum over 8 nodes, replicas in each", "1792, 8x a NIC", "1120 reachable", "1792", "1792"},
};

// MiB with as many digits as it takes, up to two.
std::string MiB(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", static_cast<double>(bytes) / (1 << 20));
  std::string out = text;
  while (out.back() == '0') out.pop_back();
  if (out.back() == '.') out.pop_back();
  return out;
}

std::string Times(int64_t bytes, int64_t bound) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3fx", static_cast<double>(bytes) / static_cast<double>(bound));
  return text;
}

std::string OpsText(const Plan& plan) {
  std::string out;
  for (const Step& step : plan.steps) out += (out.empty() ? "" : ", ") + std::string(Name(step.op));
  return out;
}

void PrintHardCases() {
  std::ifstream file(RESHARD_SOURCE_DIR "/tests/golden/cases.json");
  const nlohmann::json cases = nlohmann::json::parse(file);
  std::printf(
      "MiB received by the worst device, a tensor of 1 GiB (`reshard plan --objective bytes`; \"named\" is without\n"
      "Exchange). LB: what no algorithm can go below.\n\n"
      "| | case | LB | **reshard** | plan | named ops only | DTensor greedy | DTensor min-cost | Shardy | XLA |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n");
  for (const HardCase& hard : kHardCases) {
    const auto found = std::find_if(cases.begin(), cases.end(), [&](const auto& c) { return c["name"] == hard.name; });
    const auto mesh = *ParseMesh((*found)["mesh"].get<std::string>());
    const Layout from = *ParseLayout((*found)["from"].get<std::string>(), mesh);
    const Layout to = *ParseLayout((*found)["to"].get<std::string>(), mesh);
    const auto plan = MakePlan({from, to, DType::kBF16}, Bytes());
    const auto named = MakePlan({from, to, DType::kBF16}, Named());
    const int64_t bound = plan->bounds.recv_bytes_max;
    std::printf("| %s | %s | %s | **%s** = %s | %s | %s = %s | %s | %s | %s | %s |\n", hard.name, hard.text,
                MiB(bound).c_str(), MiB(plan->totals.recv_bytes_max).c_str(),
                Times(plan->totals.recv_bytes_max, bound).c_str(), OpsText(*plan).c_str(),
                MiB(named->totals.recv_bytes_max).c_str(), Times(named->totals.recv_bytes_max, bound).c_str(),
                hard.greedy, hard.graph, hard.shardy, hard.xla);
  }
  std::printf("\n");
}

// ---- Ratios over many pairs ----

struct Ratios {
  std::vector<double> values;
  int64_t failed = 0;

  void Add(int64_t bytes, int64_t bound) { values.push_back(static_cast<double>(bytes) / static_cast<double>(bound)); }
  // "1.054 / max 1.50 (79.9 % at the bound)"
  std::string Text() const {
    if (values.empty()) return "-";
    double logs = 0, most = 0;
    int64_t exact = 0;
    for (const double v : values) {
      logs += std::log(v);
      most = std::max(most, v);
      exact += v <= 1;
    }
    const auto n = static_cast<double>(values.size());
    char text[96];
    std::snprintf(text, sizeof text, "%.4f / %.2f (%.1f %%)", std::exp(logs / n), most,
                  100 * static_cast<double>(exact) / n);
    std::string out = text;
    if (failed > 0) out += ", " + std::to_string(failed) + " without a plan";
    return out;
  }
};

// Calls visit(from, to) for every ordered pair, or every `stride`-th of them; the pairs are counted by the visitor.
void EveryPair(const std::vector<BoxLayout>& layouts, size_t stride,
               const std::function<void(const BoxLayout&, const BoxLayout&)>& visit) {
  for (size_t i = 0; i < layouts.size() * layouts.size(); i += stride) {
    visit(layouts[i / layouts.size()], layouts[i % layouts.size()]);
  }
}

struct Sweep {
  const char* title;
  const char* mesh;
  int rank;
};
const Sweep kSweeps[] = {{"2x2x2, rank 2", "{A:2,B:2,C:2}", 2},
                         {"2x2x2, rank 3", "{A:2,B:2,C:2}", 3},
                         {"2x2x2x2, rank 2", "{A:2,B:2,C:2,D:2}", 2}};

struct SweepColumn {
  int64_t pairs = 0, default_order = 0;
  Ratios any, any_default, named, boxes;
};

SweepColumn Measure(const Sweep& sweep, size_t stride) {
  SweepColumn out;
  const auto mesh = *ParseMesh(sweep.mesh);
  EveryPair(BoxLayouts(mesh, sweep.rank), stride, [&](const BoxLayout& from, const BoxLayout& to) {
    const auto plan = MakePlan({from.layout, to.layout, DType::kI8}, Bytes());
    const int64_t bound = plan->bounds.recv_bytes_max;
    if (bound == 0) return;
    const bool default_order = from.default_order && to.default_order;
    ++out.pairs;
    out.default_order += default_order;
    // Summed over steps, as the other planners' figures are.
    const auto add = [&](const absl::StatusOr<Plan>& p, Ratios& ratios) {
      if (!p.ok()) {
        ++ratios.failed;
        return;
      }
      int64_t sum = 0;
      for (const Step& step : p->steps) sum += step.recv_bytes_max;
      ratios.Add(sum, bound);
    };
    add(plan, out.any);
    if (default_order) add(plan, out.any_default);
    add(MakePlan({from.layout, to.layout, DType::kI8}, Named()), out.named);
    add(MakePlan({from.layout, to.layout, DType::kI8}, Boxes()), out.boxes);
  });
  return out;
}

void PrintSweeps(size_t stride) {
  std::vector<SweepColumn> columns;
  for (const Sweep& sweep : kSweeps) {
    const auto start = std::chrono::steady_clock::now();
    columns.push_back(Measure(sweep, stride));
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    std::fprintf(stderr, "%s: %.1f s\n", sweep.title, spent.count());
  }
  std::printf(
      "Bytes received by the worst device, summed over steps, / lower bound: geomean / max (share of pairs at the "
      "bound)\nover all ordered pairs of box layouts between which a byte must move%s.\n\n| planner |",
      stride > 1 ? " (a sample)" : "");
  for (size_t i = 0; i < columns.size(); ++i) {
    std::printf(" %s: %lld pairs (%lld in default order) |", kSweeps[i].title, static_cast<long long>(columns[i].pairs),
                static_cast<long long>(columns[i].default_order));
  }
  std::printf("\n|---|---|---|---|\n");
  const auto ours = [&](const char* name, Ratios SweepColumn::*ratios) {
    std::printf("| %s |", name);
    for (const SweepColumn& column : columns) std::printf(" %s |", (column.*ratios).Text().c_str());
    std::printf("\n");
  };
  ours("**reshard**, `--objective bytes`", &SweepColumn::any);
  ours("the same, default-order pairs", &SweepColumn::any_default);
  ours("**reshard**, named ops only (digit-level intermediates)", &SweepColumn::named);
  ours("**reshard**, `--ops boxes`", &SweepColumn::boxes);
  std::printf(
      "| best sequence of the ops of arXiv 2112.01075 (search, contiguous boxes) | 1.15 / 2.33 | 1.21 / 2.33 | 1.21 / "
      "2.33 |\n"
      "| Shardy's algorithm | 1.20 / 2.33 | 1.30 / 2.67 | 1.25 / 2.33 |\n"
      "| DTensor's graph, if it minimised bytes; default-order pairs | 1.21 / 2.83 | 1.20 / 2.33 | 1.35 / 3.69 |\n"
      "| DTensor greedy; default-order pairs | 1.91 / 8 | 2.01 / 8 | 3.01 / 16 |\n\n");
}

// ---- Two levels ----

struct Network {
  const char* title;
  const char* mesh;
  int64_t node;  // devices
  const char* shardy;
};
const Network kNetworks[] = {
    {"2 nodes x 4", "{N:2,A:2,B:2}", 4, "1.28 / 4"},
    {"4 nodes x 4", "{N:2,M:2,A:2,B:2}", 4, "1.37 / 6.7"},
    {"2 nodes x 8", "{N:2,A:2,B:2,C:2}", 8, "1.32 / 8"},
};

struct NetworkColumn {
  int64_t pairs = 0, crossing = 0, needless = 0;
  Ratios bytes, nic, direct, direct_nic;
};

PlanOptions OnNodes(int64_t devices) {
  PlanOptions options = Bytes();
  options.topology = {"two-level", {{devices, 450'000'000'000, 3000}, {0, 50'000'000'000, 12000}}};
  return options;
}

NetworkColumn Measure(const Network& network, size_t stride) {
  NetworkColumn out;
  const auto mesh = *ParseMesh(network.mesh);
  const PlanOptions options = OnNodes(network.node);
  PlanOptions one_step = options;
  one_step.objective = Objective::kSteps;
  EveryPair(BoxLayouts(mesh, 2), stride, [&](const BoxLayout& from, const BoxLayout& to) {
    const auto plan = MakePlan({from.layout, to.layout, DType::kI8}, options);
    const auto direct = MakePlan({from.layout, to.layout, DType::kI8}, one_step);
    if (!plan.ok() || !direct.ok()) {
      ++out.bytes.failed;
      return;
    }
    if (plan->bounds.recv_bytes_max == 0) return;
    ++out.pairs;
    if (plan->totals.levels.size() != 2 || plan->bounds.levels.size() != 2) return;
    const LevelBound& bound = plan->bounds.levels[1];
    const LevelFigures& moved = plan->totals.levels[1];
    if (bound.recv_bytes_total == 0) {
      out.needless += moved.recv_bytes_total > 0;
      return;
    }
    ++out.crossing;
    out.bytes.Add(moved.recv_bytes_total, bound.recv_bytes_total);
    out.nic.Add(moved.nic_bytes_max, bound.nic_bytes_max);
    out.direct.Add(direct->totals.levels[1].recv_bytes_total, bound.recv_bytes_total);
    out.direct_nic.Add(direct->totals.levels[1].nic_bytes_max, bound.nic_bytes_max);
  });
  return out;
}

void PrintNetworks(size_t stride) {
  std::vector<NetworkColumn> columns;
  for (const Network& network : kNetworks) {
    const auto start = std::chrono::steady_clock::now();
    columns.push_back(Measure(network, stride));
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    std::fprintf(stderr, "%s: %.1f s\n", network.title, spent.count());
  }
  std::printf(
      "Bytes between nodes / what the nodes must receive whatever the algorithm, and bytes through the busiest NIC / "
      "its "
      "share of that:\ngeomean / max (share of pairs at the bound), rank 2, all pairs%s; one NIC a device.\n\n| |",
      stride > 1 ? " (a sample)" : "");
  for (const Network& network : kNetworks) std::printf(" %s |", network.title);
  std::printf("\n|---|---|---|---|\n");
  const auto row = [&](const char* name, const std::function<std::string(size_t)>& text) {
    std::printf("| %s |", name);
    for (size_t i = 0; i < columns.size(); ++i) std::printf(" %s |", text(i).c_str());
    std::printf("\n");
  };
  row("pairs between which a byte must move", [&](size_t i) { return std::to_string(columns[i].pairs); });
  row("of these, between nodes", [&](size_t i) { return std::to_string(columns[i].crossing); });
  row("**reshard**, all bytes", [&](size_t i) { return columns[i].bytes.Text(); });
  row("**reshard**, busiest NIC", [&](size_t i) { return columns[i].nic.Text(); });
  row("one exchange with the nearest replicas, all bytes", [&](size_t i) { return columns[i].direct.Text(); });
  row("one exchange with the nearest replicas, busiest NIC", [&](size_t i) { return columns[i].direct_nic.Text(); });
  row("Shardy's sequences, all bytes", [&](size_t i) { return kNetworks[i].shardy; });
  row("**reshard** crosses nodes without need",
      [&](size_t i) { return std::to_string(columns[i].needless) + " pairs"; });
  std::printf("| Shardy crosses nodes without need | 184 pairs | 2,720 pairs | 5,874 pairs |\n\n");
}

// ---- Two levels, uneven ----

struct Uneven {
  const char* title;
  const char* mesh;
  int64_t node;  // devices
  int64_t rows;
  int64_t columns;
  const char* target_mesh = "";  // the same
};
const Uneven kUneven[] = {
    {"13 x 11, 2 nodes x 4", "{N:2,X:4}", 4, 13, 11},
    {"130 x 110, 2 nodes x 4", "{N:2,X:4}", 4, 130, 110},
    {"1301 x 1103, 2 nodes x 4", "{N:2,X:4}", 4, 1301, 1103},
    {"50257 x 4097, 4 nodes x 8", "{N:4,X:8}", 8, 50257, 4097},
    {"50257 x 4097, 3 nodes x 5", "{N:3,X:5}", 5, 50257, 4097},
    {"1024 x 1024, 2 nodes x 4, onto 2 x 2 x 2", "{N:2,X:4}", 4, 1024, 1024, "{M:2,Y:2,Z:2}"},
    {"1301 x 1103, 2 nodes x 4, onto 2 x 2 x 2", "{N:2,X:4}", 4, 1301, 1103, "{M:2,Y:2,Z:2}"},
};

void PrintUneven() {
  std::printf(
      "Bytes through the busiest NIC / what it must receive or send, whatever the algorithm: geomean / max "
      "(share of pairs\nat the bound), all pairs of box layouts, bf16.\n\n"
      "| tensor | pairs across nodes | **reshard** | within 5 %% | one exchange with the nearest replicas |\n"
      "|---|---|---|---|---|\n");
  for (const Uneven& uneven : kUneven) {
    const auto mesh = *ParseMesh(uneven.mesh);
    const PlanOptions options = OnNodes(uneven.node);
    PlanOptions one_step = options;
    one_step.objective = Objective::kSteps;
    const auto sized = [&](const Layout& layout) {
      std::vector<DimLayout> dims = layout.dims();
      dims[0].size = uneven.rows;
      dims[1].size = uneven.columns;
      return Layout::Create(layout.mesh(), std::move(dims));
    };
    int64_t pairs = 0, near = 0;
    Ratios ours, direct;
    const auto measure = [&](const BoxLayout& from, const BoxLayout& to) {
      const auto source = sized(from.layout);
      const auto target = sized(to.layout);
      if (!source.ok() || !target.ok()) return;
      const auto plan = MakePlan({*source, *target, DType::kBF16}, options);
      const auto step = MakePlan({*source, *target, DType::kBF16}, one_step);
      if (!plan.ok() || !step.ok()) {
        ++ours.failed;
        return;
      }
      if (plan->totals.levels.size() != 2 || plan->bounds.levels.size() != 2) return;
      const int64_t bound = plan->bounds.levels[1].nic_bytes_max;
      if (bound == 0) return;
      ++pairs;
      near += plan->totals.levels[1].nic_bytes_max * 100 <= bound * 105;
      ours.Add(plan->totals.levels[1].nic_bytes_max, bound);
      direct.Add(step->totals.levels[1].nic_bytes_max, bound);
    };
    if (*uneven.target_mesh == 0) {
      EveryPair(BoxLayouts(mesh, 2), 1, measure);
    } else {
      const std::vector<BoxLayout> targets = BoxLayouts(*ParseMesh(uneven.target_mesh), 2);
      for (const BoxLayout& from : BoxLayouts(mesh, 2)) {
        for (const BoxLayout& to : targets) measure(from, to);
      }
    }
    std::printf("| %s | %lld | %s | %.0f %% | %s |\n", uneven.title, static_cast<long long>(pairs), ours.Text().c_str(),
                100.0 * static_cast<double>(near) / static_cast<double>(pairs), direct.Text().c_str());
  }
  std::printf("\n");
}

// ---- What programs really did ----

void PrintMeasured() {
  std::printf(
      "The other programs as they run, on the 10,755 pairs of 2x2x2, rank 3 (DTensor: the 3,810 in default order); JAX "
      "and\ntorch releases as named. Ours on the same pairs: the middle column of the sweep.\n\n"
      "| planner | pairs | geomean | p90 | max | at the bound | memory above max(source, target) |\n"
      "|---|---|---|---|---|---|---|\n"
      "| Shardy's reshard pass, through the jaxlib wheel | 10,755 | 1.302 | 2.0 | 2.67 | 44 %% | 0 |\n"
      "| DTensor min-cost (its context manager) | 3,810 | 1.330 | 2.0 | 3.33 | 43 %% | 2.5 %% |\n"
      "| XLA as JAX 0.10.2 and 0.12.0.1 run it | 10,755 | 1.895 | 4.0 | 12 | 31 %% | 21.9 %%, up to 8x |\n"
      "| DTensor greedy, torch 2.11.0 and 2.15.0 | 3,810 | 2.006 | 4.0 | 8 | 25 %% | 60 %%, up to 4x |\n"
      "| DTensor greedy over Gloo | 3,810 | 2.756 | 6.0 | 8 | 10 %% | 84 %% |\n\n");
}

int Run(int argc, char** argv) {
  size_t stride = 1;
  std::set<std::string> parts;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--quick") {
      stride = 41;
    } else if (word == "hard" || word == "sweep" || word == "levels" || word == "uneven" || word == "measured") {
      parts.insert(word);
    } else {
      std::fprintf(stderr, "usage: bench_planners [--quick] [hard] [sweep] [levels] [uneven] [measured]\n");
      return 2;
    }
  }
  const auto wanted = [&](const char* part) { return parts.empty() || parts.count(part) > 0; };
  if (wanted("hard")) PrintHardCases();
  if (wanted("sweep")) PrintSweeps(stride);
  if (wanted("levels")) PrintNetworks(stride);
  if (wanted("uneven")) PrintUneven();
  if (wanted("measured")) PrintMeasured();
  return 0;
}

}  // namespace
}  // namespace reshard::bench

int main(int argc, char** argv) { return reshard::bench::Run(argc, argv); }
