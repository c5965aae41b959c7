// Horizontal bars in groups, as a stand-alone SVG document.
#ifndef RESHARD_TESTS_BENCH_BAR_CHART_H_
#define RESHARD_TESTS_BENCH_BAR_CHART_H_

#include <cstdint>
#include <string>
#include <vector>

namespace reshard::bench {

struct Bar {
  int64_t permille = 0;  // of the chart's unit
  std::string text;      // behind the bar
  bool marked = false;
};

struct BarGroup {
  std::string name;
  std::vector<Bar> bars;
};

// Bars longer than `most` units are cut there, and end in an arrow.
std::string BarChart(const std::string& title, const std::string& subtitle, const std::vector<BarGroup>& groups,
                     int64_t most);

}  // namespace reshard::bench

#endif  // RESHARD_TESTS_BENCH_BAR_CHART_H_
