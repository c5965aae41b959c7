#include "planner/report/panel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace reshard::report {
namespace {

// Paul Tol's "light" scheme, made to be told apart with any colour vision and to carry black text; then lighter tints.
constexpr std::array<std::string_view, 16> kColors = {"#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99",
                                                      "#bbcc33", "#c6b7e2", "#c1d8f0", "#f8d0c2", "#f8f2cf", "#ffdde4",
                                                      "#d8f2ff", "#b4e3d6", "#e4ebad", "#e8e2f4"};
constexpr std::string_view kElidedColor = "#f0f0f0";

constexpr SvgFont kLabel = {.size = 12, .anchor = "middle"};
constexpr SvgFont kTick = {.size = 11, .fill = "#444444"};
constexpr SvgFont kDimName = {.size = 12, .bold = true, .mono = false, .anchor = "middle", .fill = "#444444"};

constexpr int kLineHeight = 15;
constexpr int kElidedRow = 24;
constexpr int kElidedCol = 40;
constexpr int kLeastRow = 20;
constexpr int kLeastCol = 30;
constexpr int kBarHeight = 56;  // of a tensor with one dimension

// Pixel edges of the blocks, in proportion to their lengths but none below `least`.
std::vector<int> Edges(const DimBlocks& dim, int target, int least, int elided) {
  int64_t length = 0;
  for (const Block& block : dim.blocks) {
    if (!block.elided) length += block.interval.length();
  }
  std::vector<int> edges = {0};
  for (const Block& block : dim.blocks) {
    int pixels = elided;
    if (!block.elided) {
      const double share = static_cast<double>(block.interval.length()) / static_cast<double>(length);
      pixels = std::max(least, static_cast<int>(std::lround(share * target)));
    }
    edges.push_back(edges.back() + pixels);
  }
  return edges;
}

std::string Tick(const DimBlocks& dim, size_t i) {
  return absl::StrCat(i < dim.blocks.size() ? dim.blocks[i].interval.begin : dim.blocks[i - 1].interval.end);
}

size_t LongestTick(const DimBlocks& dim) {
  size_t longest = 0;
  for (size_t i = 0; i <= dim.blocks.size(); ++i) longest = std::max(longest, Tick(dim, i).size());
  return longest;
}

}  // namespace

Palette::Palette(std::vector<int64_t> first_devices) : first_devices_(std::move(first_devices)) {
  std::sort(first_devices_.begin(), first_devices_.end());
  first_devices_.erase(std::unique(first_devices_.begin(), first_devices_.end()), first_devices_.end());
}

std::string_view Palette::Of(int64_t first_device) const {
  const auto at = std::lower_bound(first_devices_.begin(), first_devices_.end(), first_device);
  return kColors[static_cast<size_t>(at - first_devices_.begin()) % kColors.size()];
}

Panel::Panel(const Layout& layout, const Options& options)
    : layout_(layout), options_(options), view_(MakeView(layout, options.dims, options.max_rows, options.max_cols)) {
  if (options.position) {
    offset_ = 0;
    for (int d : {view_.row_dim, view_.col_dim}) {
      if (d >= 0) *offset_ += OffsetOf(layout, d, *options.position);
    }
  }
  if (view_.rows.blocks.empty()) {  // no elements
    tensor_width_ = options.side / 2;
    tensor_height_ = kBarHeight;
    row_edges_ = col_edges_ = {0};
    return;
  }

  // The shape is kept as far as both sides stay readable.
  int row_target = kBarHeight;
  int col_target = options.side;
  if (view_.row_dim >= 0) {
    const double ratio =
        static_cast<double>(layout.dim(view_.row_dim).size) / static_cast<double>(layout.dim(view_.col_dim).size);
    const int least = options.side / 3;
    row_target = ratio >= 1 ? options.side : std::max(least, static_cast<int>(options.side * ratio));
    col_target = ratio <= 1 ? options.side : std::max(least, static_cast<int>(options.side / ratio));
  } else if (view_.col_dim < 0) {
    col_target = options.side / 2;
  }

  // Columns wide enough for short labels and for the ticks above them.
  size_t label = 0;
  for (const Holders& holders : AllHolders()) {
    label = std::max(label, DeviceText(holders.devices, view_.cols.blocks.size() <= 8 ? 12 : 8).size());
  }
  int least_col = std::max(kLeastCol, kLabel.Width(label) + 8);
  if (view_.col_dim >= 0) least_col = std::max(least_col, kTick.Width(LongestTick(view_.cols)) + 8);
  row_edges_ = Edges(view_.rows, row_target, kLeastRow, kElidedRow);
  col_edges_ = Edges(view_.cols, col_target, least_col, kElidedCol);
  tensor_width_ = col_edges_.back();
  tensor_height_ = row_edges_.back();
  if (view_.col_dim >= 0) {
    top_ = 38;
    left_ = right_ = kTick.Width(LongestTick(view_.cols)) / 2 + 2;
  }
  if (view_.row_dim >= 0) left_ = std::max(left_, kTick.Width(LongestTick(view_.rows)) + 30);
}

Panel::Holders Panel::HoldersOf(size_t row, size_t col) const {
  const int64_t offset = view_.offset(row, col);
  return {DevicesAt(layout_.mesh(), view_.free, offset), offset};
}

std::vector<Panel::Holders> Panel::AllHolders() const {
  std::map<int64_t, Holders> by_offset;
  for (size_t i = 0; i < view_.rows.blocks.size(); ++i) {
    for (size_t j = 0; j < view_.cols.blocks.size(); ++j) {
      if (view_.elided(i, j) || by_offset.contains(view_.offset(i, j))) continue;
      by_offset.emplace(view_.offset(i, j), HoldersOf(i, j));
    }
  }
  std::vector<Holders> out;
  for (auto& [offset, holders] : by_offset) out.push_back(std::move(holders));
  std::sort(out.begin(), out.end(), [](const Holders& a, const Holders& b) { return a.first() < b.first(); });
  return out;
}

std::vector<int64_t> Panel::FirstDevices() const {
  std::vector<int64_t> first;
  for (const Holders& holders : AllHolders()) first.push_back(holders.first());
  return first;
}

bool Panel::Shows(int64_t offset) const {
  for (size_t i = 0; i < view_.rows.blocks.size(); ++i) {
    for (size_t j = 0; j < view_.cols.blocks.size(); ++j) {
      if (!view_.elided(i, j) && view_.offset(i, j) == offset) return true;
    }
  }
  return false;
}

void Panel::Draw(Svg& svg, int x, int y, const Palette& palette) const {
  x += left_;
  y += top_;
  if (view_.rows.blocks.empty()) {
    svg.DashedRect(x, y, tensor_width_, tensor_height_);
    svg.Text(x + tensor_width_ / 2, y + tensor_height_ / 2, "no elements", kLabel);
    return;
  }
  DrawTicks(svg, x, y);
  // The block that is pointed out comes last, so that no neighbor paints over its border.
  for (const bool pointed_out : {false, true}) {
    for (size_t i = 0; i < view_.rows.blocks.size(); ++i) {
      for (size_t j = 0; j < view_.cols.blocks.size(); ++j) {
        const bool own = offset_ && !view_.elided(i, j) && view_.offset(i, j) == *offset_;
        if (own == pointed_out) DrawCell(svg, x, y, i, j, palette);
      }
    }
  }
  svg.Rect(x, y, tensor_width_, tensor_height_, "none", "#222222", 1.5);
}

void Panel::DrawCell(Svg& svg, int x, int y, size_t row, size_t col, const Palette& palette) const {
  x += col_edges_[col];
  y += row_edges_[row];
  const int width = col_edges_[col + 1] - col_edges_[col];
  const int height = row_edges_[row + 1] - row_edges_[row];
  std::string where;
  for (const bool is_row : {true, false}) {
    const int d = is_row ? view_.row_dim : view_.col_dim;
    const Interval& interval = is_row ? view_.rows.blocks[row].interval : view_.cols.blocks[col].interval;
    if (d >= 0) absl::StrAppend(&where, ", dim ", d, " [", interval.begin, ",", interval.end, ")");
  }
  if (view_.elided(row, col)) {
    svg.BeginGroup(absl::StrCat("blocks left out", where), offset_.has_value());
    svg.Rect(x, y, width, height, kElidedColor, "#999999");
    svg.Text(x + width / 2, y + height / 2, "...", kLabel);
    svg.EndGroup();
    return;
  }
  const Holders holders = HoldersOf(row, col);
  const bool own = offset_ == holders.offset;
  svg.BeginGroup(
      absl::StrCat(holders.devices.count == 1 ? "device " : "devices ", DeviceText(holders.devices, 400), where),
      offset_.has_value() && !own);
  svg.Rect(x, y, width, height, palette.Of(holders.first()), own ? "#000000" : "#555555", own ? 3 : 0.8);
  if (layout_.partial()) svg.Rect(x, y, width, height, Svg::kPartialFill);
  const std::vector<std::string> lines = Label(holders.devices, width, height);
  int middle = y + height / 2 - (static_cast<int>(lines.size()) - 1) * kLineHeight / 2;
  for (const std::string& line : lines) {
    svg.Text(x + width / 2, middle, line, kLabel);
    middle += kLineHeight;
  }
  svg.EndGroup();
}

void Panel::DrawTicks(Svg& svg, int x, int y) const {
  if (view_.col_dim >= 0) {
    svg.Text(x + tensor_width_ / 2, y - 30, absl::StrCat("dim ", view_.col_dim), kDimName);
    SvgFont font = kTick;
    font.anchor = "middle";
    for (size_t j = 0; j < col_edges_.size(); ++j) {
      svg.Text(x + col_edges_[j], y - 12, Tick(view_.cols, j), font);
      svg.Rect(x + col_edges_[j], y - 5, 1, 5, "#444444");
    }
  }
  if (view_.row_dim >= 0) {
    const int width = kTick.Width(LongestTick(view_.rows));
    svg.TextUpwards(x - width - 20, y + tensor_height_ / 2, absl::StrCat("dim ", view_.row_dim), kDimName);
    SvgFont font = kTick;
    font.anchor = "end";
    for (size_t i = 0; i < row_edges_.size(); ++i) {
      svg.Text(x - 8, y + row_edges_[i], Tick(view_.rows, i), font);
      svg.Rect(x - 5, y + row_edges_[i], 5, 1, "#444444");
    }
  }
}

std::vector<std::string> Panel::Label(const DeviceSet& devices, int width, int height) const {
  size_t chars = 1;
  while (kLabel.Width(chars + 1) <= width - 6) ++chars;
  const auto lines = static_cast<size_t>(std::clamp((height - 4) / kLineHeight, 1, 4));
  std::string one_line = DeviceText(devices, chars);
  std::vector<std::string> ranges = DeviceRanges(devices);
  size_t all = ranges.size() - 1;  // commas
  for (const std::string& range : ranges) all += range.size();
  if (lines == 1 || (devices.complete && all <= chars)) return {one_line};

  // All of the list over several lines, or the shortened list and how many there are.
  std::vector<std::string> out = {""};
  for (const std::string& range : ranges) {
    if (!out.back().empty() && out.back().size() + 2 + range.size() > chars) {
      out.back() += ",";
      out.emplace_back();
    }
    absl::StrAppend(&out.back(), out.back().empty() ? "" : ",", range);
  }
  const bool fits = devices.complete && out.size() <= lines &&
                    std::all_of(out.begin(), out.end(), [&](const std::string& line) { return line.size() <= chars; });
  if (fits) return out;
  const std::string count = absl::StrCat(devices.count, " devices");
  if (count.size() > chars) return {one_line};
  return {one_line, count};
}

}  // namespace reshard::report
