// LayoutToSvg: title, one panel, a legend of who holds which block.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/report/panel.h"
#include "planner/report/svg.h"
#include "planner/report/view.h"
#include "reshard/layout/text.h"
#include "reshard/planner/report.h"

namespace reshard {
namespace {

constexpr int kMargin = 24;
constexpr int kGap = 24;
constexpr size_t kTitleChars = 96;
constexpr size_t kFactChars = 120;
constexpr size_t kLegendEntries = 16;

constexpr SvgFont kTitle = {.size = 17, .bold = true};
constexpr SvgFont kFact = {.size = 13, .mono = false, .fill = "#333333"};
constexpr SvgFont kWarning = {.size = 13, .bold = true, .mono = false, .fill = "#a02020"};
constexpr SvgFont kNote = {.size = 12, .mono = false, .fill = "#555555"};

// Swatches with the devices they stand for and the coordinates these have in common, in columns.
class Legend {
 public:
  Legend(const Layout& layout, const Panel& panel, const Palette& palette) {
    const std::vector<Panel::Holders> all = panel.AllHolders();
    const size_t shown = all.size() <= kLegendEntries ? all.size() : kLegendEntries - 1;
    for (size_t i = 0; i < shown; ++i) {
      Entry entry;
      entry.color = palette.Of(all[i].first());
      entry.devices = DeviceText(all[i].devices, 24);
      entry.coordinates = Clip(CoordinatesOf(layout, panel.view(), all[i].offset), 40);
      entry.own = panel.own_offset() == all[i].offset;
      devices_width_ = std::max(devices_width_, kDevices.Width(entry.devices.size()));
      coordinates_width_ = std::max(coordinates_width_, kCoordinates.Width(entry.coordinates.size()));
      entries_.push_back(std::move(entry));
    }
    if (shown < all.size()) more_ = absl::StrCat("... and ", all.size() - shown, " more in the picture");
  }

  int width(int columns) const {
    if (entries_.empty()) return 0;
    return std::max(
        {columns * ColumnWidth() - kGap, kHeading.Width(kTitleText.size()), kCoordinates.Width(more_.size())});
  }
  int height(int columns) const { return entries_.empty() ? 0 : (Rows(columns) + 1 + (more_.empty() ? 0 : 1)) * kLine; }
  // As many columns as fit into `width`, at least one.
  int ColumnsIn(int width) const {
    return std::clamp((width + kGap) / ColumnWidth(), 1, std::max(1, static_cast<int>(entries_.size())));
  }

  void Draw(Svg& svg, int x, int y, int columns) const {
    if (entries_.empty()) return;
    svg.Text(x, y + kLine / 2, kTitleText, kHeading);
    const int rows = Rows(columns);
    for (size_t i = 0; i < entries_.size(); ++i) {
      const int left = x + static_cast<int>(i) / rows * ColumnWidth();
      const int middle = y + (static_cast<int>(i) % rows + 1) * kLine + kLine / 2;
      const Entry& entry = entries_[i];
      svg.Rect(left, middle - kSwatch / 2, kSwatch, kSwatch, entry.color, entry.own ? "#000000" : "#555555",
               entry.own ? 2.5 : 0.8);
      svg.Text(left + kSwatch + 8, middle, entry.devices, kDevices);
      svg.Text(left + kSwatch + 8 + devices_width_ + 12, middle, entry.coordinates, kCoordinates);
    }
    if (!more_.empty()) svg.Text(x, y + (rows + 1) * kLine + kLine / 2, more_, kCoordinates);
  }

 private:
  static constexpr int kLine = 21;
  static constexpr int kSwatch = 14;
  static constexpr SvgFont kHeading = {.size = 13, .bold = true, .mono = false};
  static constexpr SvgFont kDevices = {.size = 12};
  static constexpr SvgFont kCoordinates = {.size = 12, .fill = "#666666"};
  static constexpr std::string_view kTitleText = "held by devices";

  struct Entry {
    std::string_view color;
    std::string devices;
    std::string coordinates;
    bool own = false;
  };

  // "X=0 Y=1": the coordinates that choose the block.
  static std::string CoordinatesOf(const Layout& layout, const View& view, int64_t offset) {
    std::vector<AxisRef> refs;
    for (int d : {view.row_dim, view.col_dim}) {
      if (d < 0) continue;
      for (const Factor& factor : layout.dim(d).factors) {
        if (factor.has_axis() && factor.axis.size > 1) refs.push_back(factor.axis);
      }
    }
    std::sort(refs.begin(), refs.end(),
              [](const AxisRef& a, const AxisRef& b) { return std::pair(a.axis, a.pre) < std::pair(b.axis, b.pre); });
    std::vector<std::string> out;
    for (const AxisRef& ref : refs) {
      out.push_back(absl::StrCat(ToString(layout.mesh(), ref), "=", layout.Coordinate(offset, ref)));
    }
    return absl::StrJoin(out, " ");
  }

  int ColumnWidth() const { return kSwatch + 8 + devices_width_ + 12 + coordinates_width_ + kGap; }
  int Rows(int columns) const { return (static_cast<int>(entries_.size()) + columns - 1) / columns; }

  std::vector<Entry> entries_;
  std::string more_;
  int devices_width_ = 0;
  int coordinates_width_ = 0;
};

// What the device that was asked for holds, as lines of the header. Returns whether it holds anything.
bool AddDevice(const Layout& layout, int64_t device, std::optional<int64_t> position, SvgLines& header) {
  if (!position) {
    header.Add(absl::StrCat("device ", device, " is not in the mesh: it holds nothing"), kWarning);
    return false;
  }
  const std::string coordinates = Clip(CoordinatesText(layout.mesh(), *position), 60);
  header.Add(absl::StrCat("device ", device, " (", coordinates, ")"), kWarning);
  int64_t elements = 1;
  std::vector<std::string> held;
  for (int d = 0; d < layout.rank(); ++d) {
    const Held along = HeldAlong(layout, *position, d, 4);
    elements *= along.length;
    held.push_back(absl::StrCat("dim ", d, " ", IntervalsText(along, 4)));
  }
  if (elements == 0) {
    header.Add("holds nothing", kFact);
  } else {
    header.Add(Clip(absl::StrCat("holds ", elements, " of ", layout.num_elements(),
                                 layout.num_elements() == 1 ? " element" : " elements", held.empty() ? "" : ": ",
                                 absl::StrJoin(held, ", ")),
                    kFactChars),
               kFact);
  }
  return elements > 0;
}

}  // namespace

std::string LayoutToSvg(const Layout& layout, std::optional<int64_t> device) {
  const std::optional<int64_t> position = device ? layout.mesh().Position(*device) : std::nullopt;
  Panel::Options options;
  options.dims = DrawnDims({&layout});
  options.position = position;
  const Panel panel(layout, options);
  const Palette palette(panel.FirstDevices());
  const Legend legend(layout, panel, palette);

  const std::string title = Clip(ToString(layout), kTitleChars);
  const std::string mesh = absl::StrCat(MeshText(layout.mesh(), 60), ", ", MeshSentence(layout.mesh()));
  SvgLines header;
  header.Add(title, kTitle);
  header.Add(absl::StrCat("mesh ", mesh), kFact);
  header.Add(Clip(absl::StrCat("local ", LocalSentence(layout), "; ", CopiesSentence(layout)), kFactChars), kFact);
  const std::string pending = PendingSentence(layout);
  header.Add(pending.empty() ? "" : absl::StrCat(pending, " (hatched)"), kWarning);
  const bool holds = device && AddDevice(layout, *device, position, header);
  SvgLines notes;
  if (holds && !panel.Shows(*panel.own_offset())) {
    notes.Add(absl::StrCat("the blocks of device ", *device, " are among those left out"), kWarning);
  }
  for (std::string& note : Notes(layout, panel.view())) notes.Add(Clip(note, kFactChars), kNote);

  // The legend stands beside the panel, or below where that would be wide and flat.
  const bool below = panel.width() > 2 * panel.height();
  const int columns = below ? legend.ColumnsIn(std::max(panel.width(), header.width())) : 1;
  Svg svg;
  int y = kMargin;
  header.Draw(svg, kMargin, y);
  y += header.height() + 14;
  panel.Draw(svg, kMargin, y, palette);
  int width = std::max({header.width(), panel.width(), notes.width()});
  if (below) {
    y += panel.height() + 10;
    legend.Draw(svg, kMargin, y, columns);
    y += legend.height(columns);
    width = std::max(width, legend.width(columns));
  } else {
    legend.Draw(svg, kMargin + panel.width() + kGap, y, columns);
    y += std::max(panel.height(), legend.height(columns));
    width = std::max(width, panel.width() + kGap + legend.width(columns));
  }
  y += 8;
  notes.Draw(svg, kMargin, y);
  y += notes.height();
  return svg.Finish(width + 2 * kMargin, y + kMargin / 2, absl::StrCat(title, " over ", mesh));
}

}  // namespace reshard
