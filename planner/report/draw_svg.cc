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

constexpr int kGap = 24;
constexpr size_t kFactChars = 120;
constexpr size_t kLegendEntries = 16;

constexpr report::SvgFont kWarning = {.size = 13, .bold = true, .mono = false, .fill = "#a02020"};

// Swatches with the devices they stand for and the coordinates these have in common, in columns.
class Legend {
 public:
  Legend(const Layout& layout, const report::Panel& panel, const report::Palette& palette) {
    const std::vector<report::Panel::Holders> all = panel.AllHolders();
    const size_t shown = all.size() <= kLegendEntries ? all.size() : kLegendEntries - 1;
    for (size_t i = 0; i < shown; ++i) {
      Entry entry;
      entry.color = palette.Of(all[i].first());
      entry.devices = report::DeviceText(all[i].devices, 24);
      entry.coordinates = report::Clip(CoordinatesOf(layout, panel.view(), all[i].offset), 40);
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

  void Draw(report::Svg& svg, int x, int y, int columns) const {
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
  static constexpr report::SvgFont kHeading = {.size = 13, .bold = true, .mono = false};
  static constexpr report::SvgFont kDevices = {.size = 12};
  static constexpr report::SvgFont kCoordinates = {.size = 12, .fill = "#666666"};
  static constexpr std::string_view kTitleText = "held by devices";

  struct Entry {
    std::string_view color;
    std::string devices;
    std::string coordinates;
    bool own = false;
  };

  // "X=0 Y=1": the coordinates that choose the block.
  static std::string CoordinatesOf(const Layout& layout, const report::View& view, int64_t offset) {
    std::vector<AxisRef> refs;
    for (int d : {view.row_dim, view.col_dim}) {
      if (d < 0) continue;
      for (const AxisRef& ref : layout.dim(d).Axes()) {
        if (ref.size > 1) refs.push_back(ref);
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
bool AddDevice(const Layout& layout, int64_t device, std::optional<int64_t> position, report::SvgLines& header) {
  if (!position) {
    header.Add(absl::StrCat("device ", device, " is not in the mesh: it holds nothing"), kWarning);
    return false;
  }
  const std::string coordinates = report::Clip(report::CoordinatesText(layout.mesh(), *position), 60);
  header.Add(absl::StrCat("device ", device, " (", coordinates, ")"), kWarning);
  int64_t elements = 1;
  std::vector<std::string> held;
  for (int d = 0; d < layout.rank(); ++d) {
    const report::Held along = report::HeldAlong(layout, *position, d, 4);
    elements *= along.length;
    held.push_back(absl::StrCat("dim ", d, " ", report::IntervalsText(along, 4)));
  }
  if (elements == 0) {
    header.Add("holds nothing", report::kFact);
  } else {
    header.Add(report::Clip(absl::StrCat("holds ", elements, " of ", layout.num_elements(),
                                         layout.num_elements() == 1 ? " element" : " elements",
                                         held.empty() ? "" : ": ", absl::StrJoin(held, ", ")),
                            kFactChars),
               report::kFact);
  }
  return elements > 0;
}

}  // namespace

std::string LayoutToSvg(const Layout& layout, std::optional<int64_t> device) {
  const std::optional<int64_t> position = device ? layout.mesh().Position(*device) : std::nullopt;
  report::Panel::Options options;
  options.dims = report::DrawnDims({&layout});
  options.position = position;
  const report::Panel panel(layout, options);
  const report::Palette palette(panel.FirstDevices());
  const Legend legend(layout, panel, palette);

  const std::string title = report::Clip(ToString(layout), report::kTitleChars);
  const std::string mesh = absl::StrCat(report::MeshText(layout.mesh(), 60), ", ", report::MeshSentence(layout.mesh()));
  report::SvgLines header;
  header.Add(title, report::kTitle);
  header.Add(absl::StrCat("mesh ", mesh), report::kFact);
  header.Add(report::Clip(absl::StrCat("local ", report::LocalSentence(layout), "; ", report::CopiesSentence(layout)),
                          kFactChars),
             report::kFact);
  const std::string partial = report::PartialSentence(layout);
  header.Add(partial.empty() ? "" : absl::StrCat(partial, " (hatched)"), kWarning);
  const bool holds = device && AddDevice(layout, *device, position, header);
  report::SvgLines notes;
  if (holds && !panel.Shows(*panel.own_offset())) {
    notes.Add(absl::StrCat("the blocks of device ", *device, " are among those left out"), kWarning);
  }
  for (std::string& note : report::Notes(layout, panel.view()))
    notes.Add(report::Clip(note, kFactChars), report::kNote);

  // The legend stands beside the panel, or below where that would be wide and flat.
  const bool below = panel.width() > 2 * panel.height();
  const int columns = below ? legend.ColumnsIn(std::max(panel.width(), header.width())) : 1;
  report::Svg svg;
  int y = report::kMargin;
  header.Draw(svg, report::kMargin, y);
  y += header.height() + 14;
  panel.Draw(svg, report::kMargin, y, palette);
  int width = std::max({header.width(), panel.width(), notes.width()});
  if (below) {
    y += panel.height() + 10;
    legend.Draw(svg, report::kMargin, y, columns);
    y += legend.height(columns);
    width = std::max(width, legend.width(columns));
  } else {
    legend.Draw(svg, report::kMargin + panel.width() + kGap, y, columns);
    y += std::max(panel.height(), legend.height(columns));
    width = std::max(width, panel.width() + kGap + legend.width(columns));
  }
  y += 8;
  notes.Draw(svg, report::kMargin, y);
  y += notes.height();
  return svg.Finish(width + 2 * report::kMargin, y + report::kMargin / 2, absl::StrCat(title, " over ", mesh));
}

}  // namespace reshard
