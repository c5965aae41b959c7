// Prints, as Markdown, how long chosen plans and their alternatives take in simulation on nodes of eight H100. The same
// output on every machine; progress goes to stderr. docs/planning.md holds these tables.
//   bench_simulate [--quick] [--svg FILE]     --quick: without the 128 nodes; --svg: the plans of 16 nodes as bars
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "reshard/planner/planner.h"
#include "reshard/planner/units.h"
#include "tests/bench/bar_chart.h"
#include "tests/planner/simulate/network_cases.h"

namespace reshard::bench {
namespace {

using testing::NetworkCase;
using testing::Runner;

constexpr int64_t kMiB = int64_t{1} << 20;
const int64_t kSizes[] = {kMiB, 64 * kMiB, 1024 * kMiB};

std::string Ratio(int64_t time, int64_t other) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2fx", static_cast<double>(time) / static_cast<double>(other));
  return text;
}

// What became of all cases of one network and size.
struct Score {
  int64_t cases = 0, fastest = 0, near = 0;
};

bool Faster(const Runner& a, const Runner& b) { return a.simulation.time_ns < b.simulation.time_ns; }

void PrintRow(const NetworkCase& problem, const std::vector<Runner>& runners) {
  const Runner& chosen = runners.front();
  const int64_t time = chosen.simulation.time_ns;
  std::printf("| %s | **%s** | %s | %s | ", problem.name.c_str(), testing::OpsText(chosen.contender.plan).c_str(),
              HumanTime(time).c_str(), HumanTime(chosen.contender.plan.totals.time_ns).c_str());
  // The fastest few; of the others how many there are, and the slowest.
  constexpr size_t kShown = 3;
  std::vector<Runner> others(runners.begin() + 1, runners.end());
  std::stable_sort(others.begin(), others.end(), Faster);
  for (size_t i = 0; i < std::min(kShown, others.size()); ++i) {
    const int64_t other = others[i].simulation.time_ns;
    std::printf("%s%s %s (%s)", i > 0 ? "; " : "", testing::OpsText(others[i].contender.plan).c_str(),
                HumanTime(other).c_str(), Ratio(other, time).c_str());
  }
  if (others.size() > kShown) {
    const int64_t slowest = others.back().simulation.time_ns;
    std::printf("; %zu more, up to %s (%s)", others.size() - kShown, HumanTime(slowest).c_str(),
                Ratio(slowest, time).c_str());
  }
  std::printf("%s |\n", runners.size() == 1 ? "-" : "");
}

// Counts the case; one in which another candidate is more than 5 % faster is described in `slower`, a row of a table.
void Count(const std::string& where, const NetworkCase& problem, const std::vector<Runner>& runners, Score& score,
           std::string& slower) {
  const int64_t time = runners.front().simulation.time_ns;
  const Runner& best = *std::min_element(runners.begin(), runners.end(), Faster);
  ++score.cases;
  score.fastest += time == best.simulation.time_ns;
  if (time * 100 <= best.simulation.time_ns * 105) {
    ++score.near;
    return;
  }
  slower += "| " + where + " | " + problem.name + " | " + testing::OpsText(runners.front().contender.plan) + ", " +
            HumanTime(time) + " | " + testing::OpsText(best.contender.plan) + ", " +
            HumanTime(best.simulation.time_ns) + " | " + Ratio(time, best.simulation.time_ns) + " |\n";
}

BarGroup BarsOf(const NetworkCase& problem, std::vector<Runner> runners) {
  const int64_t unit = std::max<int64_t>(1, runners.front().simulation.time_ns);
  BarGroup group{problem.name, {}};
  std::stable_sort(runners.begin() + 1, runners.end(), Faster);
  for (const Runner& runner : runners) {
    const int64_t time = runner.simulation.time_ns;
    group.bars.push_back({static_cast<int64_t>(static_cast<__int128>(time) * 1000 / unit),
                          HumanTime(time) + "  " + testing::OpsText(runner.contender.plan), group.bars.empty()});
  }
  return group;
}

// What the busiest level needs for the bytes that must cross it whatever the algorithm, without latencies. What must
// come from outside of a domain may come over the links of any level above, at the same time.
double BusiestLevel(const Plan& plan, const Topology& topology) {
  double ns = 0;
  for (int level = 0; level < topology.num_levels(); ++level) {
    const auto bytes = static_cast<double>(plan.bounds.levels[level].nic_bytes_max);
    double bytes_per_ns = 0;
    for (int above = level; above < topology.num_levels(); ++above) {
      const double nics =
          static_cast<double>(topology.DevicesPerNic(level)) / static_cast<double>(topology.DevicesPerNic(above));
      bytes_per_ns += nics * static_cast<double>(topology.levels[above].bytes_per_second) / 1e9;
    }
    ns = std::max(ns, bytes / bytes_per_ns);
  }
  return ns;
}

// Ratios to a bound.
struct Ratios {
  double log_sum = 0, most = 0;
  int64_t cases = 0, near = 0;

  void Add(double ratio) {
    log_sum += std::log(ratio);
    most = std::max(most, ratio);
    ++cases;
    near += ratio <= 1.15;
  }
  std::string Text() const {
    char text[64];
    std::snprintf(text, sizeof text, "%.2f / %.2f (%lld)", std::exp(log_sum / static_cast<double>(cases)), most,
                  static_cast<long long>(near));
    return text;
  }
};

// Simulated time against what the busiest level needs, with steps one after the other and at the same time.
void PrintOverlap(const Topology& topology) {
  std::printf(
      "### Steps at the same time\n\nSimulated time / what the busiest level needs for what must cross it, without "
      "latencies: "
      "geomean / max (cases within 1.15).\n\n| nodes | tensor | moves | one after the other | at the same time | "
      "reductions | one after the other | at the same time |\n|---|---|---|---|---|---|---|---|\n");
  for (const int64_t nodes : {2, 4, 16}) {
    for (const int64_t bytes : {64 * kMiB, 1024 * kMiB, 16 * 1024 * kMiB}) {
      Ratios moves[2], reductions[2];  // one after the other, at the same time
      for (const NetworkCase& problem : testing::NetworkCases(nodes, bytes)) {
        for (const bool overlap : {false, true}) {
          PlanOptions options;
          options.topology = topology;
          options.overlap = overlap;
          const auto plan = MakePlan({problem.source, problem.target, DType::kBF16}, options);
          if (!plan.ok()) continue;
          const auto simulation = Simulate(*plan);
          const double bound = BusiestLevel(*plan, topology);
          if (!simulation.ok() || bound <= 0) continue;
          Ratios& into = (problem.source.partial() ? reductions : moves)[overlap ? 1 : 0];
          into.Add(static_cast<double>(simulation->time_ns) / bound);
        }
      }
      std::printf("| %lld | %s | %lld | %s | %s | %lld | %s | %s |\n", static_cast<long long>(nodes),
                  HumanBytes(bytes).c_str(), static_cast<long long>(moves[0].cases), moves[0].Text().c_str(),
                  moves[1].Text().c_str(), static_cast<long long>(reductions[0].cases), reductions[0].Text().c_str(),
                  reductions[1].Text().c_str());
    }
  }
  std::printf("\n");
}

int Run(int argc, char** argv) {
  bool quick = false;
  std::string svg;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--quick") {
      quick = true;
    } else if (word == "--svg" && i + 1 < argc) {
      svg = argv[++i];
    } else {
      std::fprintf(stderr, "usage: bench_simulate [--quick] [--svg FILE]\n");
      return 2;
    }
  }
  const Topology topology = *Topology::Preset("dgx-h100");
  std::vector<std::pair<std::string, Score>> scores;
  std::vector<BarGroup> bars;
  std::string slower;
  for (const int64_t nodes : {2, 4, 16, 128}) {
    if (quick && nodes > 16) break;
    for (const int64_t bytes : kSizes) {
      const auto start = std::chrono::steady_clock::now();
      const bool table = bytes == kSizes[2];
      const std::string where = std::to_string(nodes) + " | " + HumanBytes(bytes);
      Score score;
      if (table) {
        std::printf(
            "### %lld nodes, 1 GiB\n\n| case | chosen | simulated | priced | the other candidates, simulated (against "
            "the chosen) |\n|---|---|---|---|---|\n",
            static_cast<long long>(nodes));
      }
      for (const NetworkCase& problem : testing::NetworkCases(nodes, bytes)) {
        const std::vector<Runner> runners = testing::Race(problem, topology);
        if (table) PrintRow(problem, runners);
        if (table && nodes == 16 && runners.size() > 1) bars.push_back(BarsOf(problem, runners));
        Count(where, problem, runners, score, slower);
      }
      if (table) std::printf("\n");
      scores.emplace_back(where, score);
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
      std::fprintf(stderr, "%lld nodes, %s: %.1f s\n", static_cast<long long>(nodes), HumanBytes(bytes).c_str(),
                   spent.count());
    }
  }
  std::printf(
      "### All sizes\n\n| nodes | tensor | cases | chosen plan is the fastest | within 5 %% of it "
      "|\n|---|---|---|---|---|\n");
  for (const auto& [name, s] : scores) {
    std::printf("| %s | %lld | %lld | %lld |\n", name.c_str(), static_cast<long long>(s.cases),
                static_cast<long long>(s.fastest), static_cast<long long>(s.near));
  }
  std::printf("\n");
  if (!slower.empty()) {
    std::printf("The others:\n\n| nodes | tensor | case | chosen | fastest | |\n|---|---|---|---|---|---|\n%s\n",
                slower.c_str());
  }
  PrintOverlap(topology);
  if (!svg.empty()) {
    std::ofstream file(svg);
    file << BarChart("Time of the chosen plan and of its alternatives, 16 nodes of 8 H100, 1 GiB",
                     "simulated; blue: the chosen plan = 1x; grey: other candidates for the same redistribution", bars,
                     6);
    if (!file.flush()) {
      std::fprintf(stderr, "cannot write %s\n", svg.c_str());
      return 5;
    }
  }
  return 0;
}

}  // namespace
}  // namespace reshard::bench

int main(int argc, char** argv) { return reshard::bench::Run(argc, argv); }
