// Prints how near sequences of named collectives come to the lower bound: every ordered pair of the 106 box layouts of
// a rank-3 tensor of shape 8x8x8 on {A:2,B:2,C:2} in which a byte must move. Beside them what the exhaustive optimum
// and other planners reach on the same pairs. Nothing is asserted here; tests/property/sequences_test.cc does that.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"

namespace reshard {
namespace {

// Every way to put some of A, B and C, in some order, into three dimensions of 8.
std::vector<std::string> BoxLayouts() {
  std::vector<std::string> texts;
  const char axes[] = {'A', 'B', 'C'};
  // A word over {A, B, C, '|'} with two bars: what stands before, between and behind the bars shards dimension 0, 1, 2.
  std::vector<std::string> words = {""};
  for (size_t length = 0; length <= 5; ++length) {
    std::vector<std::string> longer;
    for (const std::string& word : words) {
      if (std::count(word.begin(), word.end(), '|') == 2) {
        std::string text = "[";
        std::string dim;
        for (const char c : word + "|") {
          if (c != '|') {
            dim += std::string(dim.empty() ? "" : ",") + c;
            continue;
          }
          text += (text == "[" ? "" : ", ") + (dim.empty() ? "" : "<" + dim + ">") + "8";
          dim.clear();
        }
        texts.push_back(text + "]");
      }
      if (std::count(word.begin(), word.end(), '|') < 2) longer.push_back(word + '|');
      for (const char axis : axes) {
        if (word.find(axis) == std::string::npos) longer.push_back(word + axis);
      }
    }
    words = std::move(longer);
  }
  return texts;
}

struct Row {
  std::string name;
  std::vector<double> ratios;
  int64_t above_ends = 0;  // plans with an intermediate larger than source and target
  int64_t failed = 0;
  double microseconds = 0;
};

Row Measure(const std::string& name, const PlanOptions& options, const std::vector<Layout>& layouts) {
  Row row;
  row.name = name;
  const auto start = std::chrono::steady_clock::now();
  for (const Layout& from : layouts) {
    for (const Layout& to : layouts) {
      const auto plan = MakePlan({from, to, DType::kI8}, options);
      if (!plan.ok()) {
        ++row.failed;
        continue;
      }
      if (plan->bounds.recv_bytes_max == 0) continue;
      int64_t sum = 0;
      for (const Step& step : plan->steps) sum += step.recv_bytes_max;
      row.ratios.push_back(static_cast<double>(sum) / static_cast<double>(plan->bounds.recv_bytes_max));
      if (plan->totals.intermediate_bytes_max > plan->bounds.intermediate_bytes_max) ++row.above_ends;
    }
  }
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
  row.microseconds = spent.count() / static_cast<double>(layouts.size() * layouts.size());
  return row;
}

void Print(Row row) {
  std::sort(row.ratios.begin(), row.ratios.end());
  double log_sum = 0;
  for (const double ratio : row.ratios) log_sum += std::log(ratio);
  const auto n = static_cast<double>(row.ratios.size());
  const auto at_bound = std::upper_bound(row.ratios.begin(), row.ratios.end(), 1.0) - row.ratios.begin();
  std::printf("%-62s %6zu %8.4f %6.2f %6.2f %7.1f %% %8lld %7.1f us\n", row.name.c_str(), row.ratios.size(),
              std::exp(log_sum / n), row.ratios[static_cast<size_t>(n * 0.9)], row.ratios.back(),
              100 * static_cast<double>(at_bound) / n, static_cast<long long>(row.above_ends), row.microseconds);
  if (row.failed > 0) std::printf("  %lld pairs have no plan\n", static_cast<long long>(row.failed));
}

int Run() {
  const auto mesh = *ParseMesh("{A:2,B:2,C:2}");
  std::vector<Layout> layouts;
  for (const std::string& text : BoxLayouts()) layouts.push_back(*ParseLayout(text, mesh));
  std::printf(
      "%zu layouts of 8x8x8 over {A:2,B:2,C:2}; bytes received by the worst device, summed over steps, / lower "
      "bound\n\n",
      layouts.size());
  std::printf("%-62s %6s %8s %6s %6s %9s %8s %10s\n", "planner", "pairs", "geomean", "p90", "max", "at bound",
              "memory*", "a plan");
  PlanOptions options;
  options.objective = Objective::kBytes;
  Print(Measure("reshard --objective bytes", options, layouts));
  options.ops = OpSet::None().with(Op::kSlice).with(Op::kAllGather).with(Op::kAllToAll).with(Op::kAllPermute);
  Print(Measure("reshard --ops Slice,AllGather,AllToAll,AllPermute", options, layouts));
  options = {};
  options.objective = Objective::kBytes;
  options.boxes_only = true;
  Print(Measure("reshard --ops boxes", options, layouts));

  std::printf("\nMeasured elsewhere on the same pairs (DTensor: its 3,810 default-order pairs):\n");
  struct Known {
    const char* name;
    const char* figures;
  };
  const Known known[] = {
      {"exhaustive optimum of the four ops", " 10755   1.0540             1.50    79.9 %        0"},
      {"exhaustive optimum of the four ops, boxes only", " 10755   1.1067             1.75    59.8 %        0"},
      {"the same when axes outside a group may change places", " 10755   1.1036             1.75    61.5 %        0"},
      {"best sequence of the ops of arXiv 2112.01075", " 10755   1.21               2.33"},
      {"Shardy's reshard pass", " 10755   1.302    2.00   2.67    44   %        0"},
      {"XLA as JAX 0.10.2 and 0.12.0.1 run it", " 10755   1.895    4.00  12.00    31   %     21.9 %"},
      {"DTensor greedy (torch 2.11.0, 2.15.0)", "  3810   2.006    4.00   8.00    25   %     60   %"},
      {"DTensor min-cost", "  3810   1.330    2.00   3.33    43   %      2.5 %"},
  };
  for (const Known& row : known) std::printf("%-62s %s\n", row.name, row.figures);
  std::printf("\n* plans with an intermediate larger than both source and target\n");
  return 0;
}

}  // namespace
}  // namespace reshard

int main() { return reshard::Run(); }
