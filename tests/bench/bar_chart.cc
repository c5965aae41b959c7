#include "tests/bench/bar_chart.h"

#include <algorithm>

#include "planner/report/svg.h"

namespace reshard::bench {
namespace {

constexpr int kMargin = 24;
constexpr int kUnit = 70;  // pixels
constexpr int kBar = 13;
constexpr int kStep = 17;
constexpr int kGap = 12;
constexpr report::SvgFont kTitle = {.size = 17, .bold = true, .mono = false};
constexpr report::SvgFont kNote = {.size = 12, .mono = false, .fill = "#555555"};
constexpr report::SvgFont kName = {.size = 12, .bold = true, .mono = false, .anchor = "end"};
constexpr report::SvgFont kText = {.size = 11, .mono = false, .fill = "#333333"};

}  // namespace

std::string BarChart(const std::string& title, const std::string& subtitle, const std::vector<BarGroup>& groups,
                     int64_t most) {
  size_t name = 0, text = 0;
  for (const BarGroup& group : groups) {
    name = std::max(name, group.name.size());
    for (const Bar& bar : group.bars) text = std::max(text, bar.text.size());
  }
  const int left = kMargin + kName.Width(name);
  const int right = left + 8 + static_cast<int>(most) * kUnit + 12;
  report::Svg svg;
  svg.Text(kMargin, kMargin + 8, title, kTitle);
  svg.Text(kMargin, kMargin + 32, subtitle, kNote);
  const int top = kMargin + 74;
  int y = top;
  for (const BarGroup& group : groups) {
    svg.Text(left, y + kBar / 2, group.name, kName);
    for (const Bar& bar : group.bars) {
      const bool cut = bar.permille > most * 1000;
      const int width = static_cast<int>(std::min(bar.permille, most * 1000) * kUnit / 1000);
      svg.Rect(left + 8, y, width, kBar, bar.marked ? "#2b6cb0" : "#c3c9d1");
      if (cut) svg.Arrow(left + 8 + width - 10, left + 8 + width + 9, y + kBar / 2, false);
      svg.Text(left + 8 + width + (cut ? 14 : 6), y + kBar / 2, bar.text, kText);
      y += kStep;
    }
    y += kGap;
  }
  for (int64_t unit = 1; unit <= most; ++unit) {
    const int x = left + 8 + static_cast<int>(unit) * kUnit;
    svg.Text(x, top - 12, std::to_string(unit) + "x",
             {.size = 11, .mono = false, .anchor = "middle", .fill = "#888888"});
  }
  const int width = std::max(right + kText.Width(text), kMargin + kNote.Width(subtitle.size())) + kMargin;
  return svg.Finish(width, y + kMargin, title);
}

}  // namespace reshard::bench
