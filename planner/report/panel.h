// One layout of a picture: the tensor as a rectangle, its blocks coloured by who holds them, index ticks at the edges.
#ifndef RESHARD_PLANNER_REPORT_PANEL_H_
#define RESHARD_PLANNER_REPORT_PANEL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/report/blocks.h"
#include "planner/report/svg.h"
#include "planner/report/view.h"
#include "reshard/layout/layout.h"

namespace reshard::report {

// What pictures of one layout and of a whole plan have in common.
inline constexpr int kMargin = 24;
inline constexpr size_t kTitleChars = 96;
inline constexpr SvgFont kTitle = {.size = 17, .bold = true};
inline constexpr SvgFont kFact = {.size = 13, .mono = false, .fill = "#333333"};
inline constexpr SvgFont kNote = {.size = 12, .mono = false, .fill = "#555555"};

// Colours for blocks by the first device that holds them, the same for all panels of a picture. Neighbors in the order
// of devices differ; after sixteen the colours come round again.
class Palette {
 public:
  explicit Palette(std::vector<int64_t> first_devices);
  std::string_view Of(int64_t first_device) const;

 private:
  std::vector<int64_t> first_devices_;  // sorted, distinct
};

class Panel {
 public:
  struct Options {
    int side = 420;         // pixels of the tensor's longer side, unless its blocks need more
    std::vector<int> dims;  // to draw, at most two
    size_t max_rows = 16;
    size_t max_cols = 16;
    std::optional<int64_t> position;  // the device to point out; blocks of other devices are faint
  };

  // The devices that hold the same blocks, and where.
  struct Holders {
    DeviceSet devices;
    int64_t offset = 0;
    int64_t first() const { return devices.ranges.front().first; }
  };

  Panel(const Layout& layout, const Options& options);

  int width() const { return left_ + tensor_width_ + right_; }
  int height() const { return top_ + tensor_height_ + kBottom; }
  // Where the middle of the tensor's height is.
  int middle() const { return top_ + tensor_height_ / 2; }
  const View& view() const { return view_; }

  // Who holds what is drawn, each once, in the order of their first devices.
  std::vector<Holders> AllHolders() const;
  // Their first devices, for the palette.
  std::vector<int64_t> FirstDevices() const;
  // The offset of the device that is pointed out.
  std::optional<int64_t> own_offset() const { return offset_; }
  // Whether a block with this offset is drawn.
  bool Shows(int64_t offset) const;
  void Draw(Svg& svg, int x, int y, const Palette& palette) const;

 private:
  static constexpr int kBottom = 8;

  Holders HoldersOf(size_t row, size_t col) const;
  void DrawCell(Svg& svg, int x, int y, size_t row, size_t col, const Palette& palette) const;
  void DrawTicks(Svg& svg, int x, int y) const;
  // The device list of a cell as lines that fit into it.
  std::vector<std::string> Label(const DeviceSet& devices, int width, int height) const;

  const Layout& layout_;
  const Options options_;
  View view_;
  std::vector<int> row_edges_;  // from the tensor's corner
  std::vector<int> col_edges_;
  std::optional<int64_t> offset_;  // of the device to point out
  int left_ = 0;                   // room for ticks
  int top_ = 0;
  int right_ = 0;
  int tensor_width_ = 0;
  int tensor_height_ = 0;
};

}  // namespace reshard::report

#endif  // RESHARD_PLANNER_REPORT_PANEL_H_
