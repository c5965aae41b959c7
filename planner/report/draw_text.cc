// DrawLayout: a header, a grid of who holds what, and a table of devices, in at most 100 columns.
#include <algorithm>
#include <cassert>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/report/view.h"
#include "reshard/layout/text.h"
#include "reshard/planner/report.h"

namespace reshard {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kMaxCells = 16;  // along one dimension
constexpr int64_t kMaxTableDevices = 32;
constexpr size_t kMaxTableWidth = 30;  // of one column of the table
constexpr size_t kMaxIntervals = 16;   // of one dimension of the device that is asked for
constexpr size_t kLeastLabel = 9;      // rather than cutting labels to less, fewer columns are drawn
constexpr size_t kHeading = 9;         // width of "layout   "

std::string Pad(std::string text, size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

// "heading  text", wrapped between words, cut where a word is too long for a line.
std::string Paragraph(std::string_view heading, std::string_view text) {
  std::string out;
  std::string line = Pad(std::string(heading), kHeading);
  bool line_is_empty = true;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = report::Clip(text.substr(at, end - at), kColumns - kHeading);
    at = end + 1;
    if (!line_is_empty && line.size() + 1 + word.size() > kColumns) {
      absl::StrAppend(&out, line, "\n");
      line.assign(kHeading, ' ');
      line_is_empty = true;
    }
    absl::StrAppend(&line, line_is_empty ? "" : " ", word);
    line_is_empty = false;
  }
  return absl::StrCat(out, line, "\n");
}

// The layout's text may be of any length: one line, cut.
std::string OneLine(std::string_view heading, std::string_view text) {
  return absl::StrCat(Pad(std::string(heading), kHeading), report::Clip(text, kColumns - kHeading), "\n");
}

std::string Header(const Layout& layout) {
  std::string out =
      OneLine("mesh", absl::StrCat(report::MeshText(layout.mesh(), 40), ", ", report::MeshSentence(layout.mesh())));
  absl::StrAppend(&out, OneLine("layout", ToString(layout)));
  absl::StrAppend(&out, Paragraph("local", report::LocalSentence(layout)));
  absl::StrAppend(&out, Paragraph("copies", report::CopiesSentence(layout)));
  const std::string partial = report::PartialSentence(layout);
  if (!partial.empty()) absl::StrAppend(&out, Paragraph("partial", partial));
  return out;
}

// The index range edges of the blocks along one dimension: one more than there are blocks.
std::vector<std::string> Ticks(const report::DimBlocks& dim) {
  std::vector<std::string> ticks;
  for (const report::Block& block : dim.blocks) ticks.push_back(absl::StrCat(block.interval.begin));
  ticks.push_back(absl::StrCat(dim.blocks.back().interval.end));
  return ticks;
}

size_t Longest(const std::vector<std::string>& texts) {
  size_t longest = 0;
  for (const std::string& text : texts) longest = std::max(longest, text.size());
  return longest;
}

class Grid {
 public:
  // Requires a tensor with elements.
  explicit Grid(const Layout& layout)
      : layout_(layout), view_(report::MakeView(layout, report::DrawnDims({&layout}), kMaxCells, kMaxCells)) {
    assert(layout.num_elements() > 0);
    // A lone dimension runs downwards where its labels would not fit side by side.
    if (view_.row_dim < 0 && view_.col_dim >= 0 && !Fits(kMaxWidth)) {
      std::swap(view_.row_dim, view_.col_dim);
      std::swap(view_.rows, view_.cols);
    }
    for (size_t columns = kMaxCells; columns >= 3 && !Fits(kLeastLabel); --columns) {
      view_.cols = report::BlocksOf(layout, view_.col_dim, columns);
    }
    Label();
  }

  const report::View& view() const { return view_; }

  std::string Draw() const {
    std::string out;
    if (view_.row_dim >= 0 && view_.col_dim >= 0) {
      absl::StrAppend(&out, "rows: dim ", view_.row_dim, ", columns: dim ", view_.col_dim, "\n");
    } else if (view_.row_dim >= 0 || view_.col_dim >= 0) {
      absl::StrAppend(&out, "dim ", std::max(view_.row_dim, view_.col_dim), "\n");
    }
    if (view_.col_dim >= 0) absl::StrAppend(&out, TickLine(), "\n");
    const std::vector<std::string> ticks = Ticks(view_.rows);
    for (size_t i = 0; i <= view_.rows.blocks.size(); ++i) {
      absl::StrAppend(&out, Margin(view_.row_dim < 0 ? "" : ticks[i]), Rule(i), "\n");
      if (i == view_.rows.blocks.size()) break;
      absl::StrAppend(&out, Margin(""), "│");
      for (size_t j = 0; j < widths_.size(); ++j) {
        absl::StrAppend(&out, Pad(absl::StrCat(" ", labels_[i][j]), widths_[j]), "│");
      }
      absl::StrAppend(&out, "\n");
    }
    return out;
  }

 private:
  static constexpr size_t kMaxWidth = 1000;

  size_t MarginWidth() const { return view_.row_dim < 0 ? 0 : Longest(Ticks(view_.rows)) + 1; }
  std::string Margin(const std::string& tick) const {
    const size_t width = MarginWidth();
    if (width == 0) return "";
    return absl::StrCat(std::string(width - 1 - tick.size(), ' '), tick, " ");
  }

  // The device list of a cell in at most `width` characters.
  std::string LabelOf(size_t row, size_t col, size_t width) const {
    if (view_.elided(row, col)) return "...";
    return report::DeviceText(report::DevicesAt(layout_.mesh(), view_.free, view_.offset(row, col)), width);
  }

  // Sets the widths of the columns for labels of at most `label_width` characters; true when the line is short enough.
  bool Fits(size_t label_width) {
    const std::vector<std::string> ticks = Ticks(view_.cols);
    widths_.assign(view_.cols.blocks.size(), 0);
    size_t total = MarginWidth() + 1;
    for (size_t j = 0; j < view_.cols.blocks.size(); ++j) {
      size_t width = view_.col_dim < 0 ? 0 : ticks[j].size();
      for (size_t i = 0; i < view_.rows.blocks.size(); ++i) {
        width = std::max(width, LabelOf(i, j, label_width).size() + 2);
      }
      widths_[j] = width;
      total += width + 1;
    }
    // The last tick begins at the last border.
    return total - 1 + (view_.col_dim < 0 ? 1 : ticks.back().size()) <= kColumns;
  }

  // Chooses the longest labels that fit.
  void Label() {
    size_t low = 1;
    size_t high = kColumns;
    while (low < high) {
      const size_t middle = (low + high + 1) / 2;
      if (Fits(middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    Fits(low);
    labels_.resize(view_.rows.blocks.size());
    for (size_t i = 0; i < view_.rows.blocks.size(); ++i) {
      for (size_t j = 0; j < view_.cols.blocks.size(); ++j) labels_[i].push_back(LabelOf(i, j, low));
    }
  }

  std::string TickLine() const {
    const std::vector<std::string> ticks = Ticks(view_.cols);
    std::string line = Margin("");
    for (size_t j = 0; j < widths_.size(); ++j) absl::StrAppend(&line, Pad(ticks[j], widths_[j] + 1));
    return absl::StrCat(line, ticks.back());
  }

  // The horizontal line above row i.
  std::string Rule(size_t i) const {
    const bool top = i == 0;
    const bool bottom = i == view_.rows.blocks.size();
    std::string out = top ? "┌" : bottom ? "└" : "├";
    for (size_t j = 0; j < widths_.size(); ++j) {
      for (size_t k = 0; k < widths_[j]; ++k) absl::StrAppend(&out, "─");
      const bool end = j + 1 == widths_.size();
      absl::StrAppend(&out, top ? (end ? "┐" : "┬") : bottom ? (end ? "┘" : "┴") : (end ? "┤" : "┼"));
    }
    return out;
  }

  const Layout& layout_;
  report::View view_;
  std::vector<size_t> widths_;  // between the borders
  std::vector<std::vector<std::string>> labels_;
};

// One line per device. Dimensions that do not fit are left out, unsharded ones first.
std::string Table(const Layout& layout) {
  const Mesh& mesh = layout.mesh();
  const int64_t devices = std::min(mesh.size(), kMaxTableDevices);
  struct Column {
    std::vector<std::string> cells;  // the heading first
    int dim = -1;
    bool sharded = true;
  };
  std::vector<Column> columns(2);
  columns[0].cells.emplace_back("device");
  columns[1].cells.emplace_back("coordinates");
  std::vector<int64_t> elements(static_cast<size_t>(devices), 1);
  for (int64_t position = 0; position < devices; ++position) {
    columns[0].cells.push_back(absl::StrCat(mesh.Device(position)));
    columns[1].cells.push_back(report::Clip(report::CoordinatesText(mesh, position), kMaxTableWidth));
  }
  for (int d = 0; d < layout.rank(); ++d) {
    Column column{{absl::StrCat("dim ", d)}, d, report::IsSharded(layout, d)};
    std::map<int64_t, std::pair<std::string, int64_t>> seen;  // by offset: text and length
    for (int64_t position = 0; position < devices; ++position) {
      auto [found, is_new] = seen.try_emplace(report::OffsetOf(layout, d, position));
      if (is_new) {
        const report::Held held = report::HeldAlong(layout, position, d, 4);
        std::string text = report::IntervalsText(held, 4);
        if (text.size() > kMaxTableWidth) text = report::IntervalsText(held, 1);
        found->second = {report::Clip(text, kMaxTableWidth), held.length};
      }
      column.cells.push_back(found->second.first);
      elements[position] *= found->second.second;
    }
    columns.push_back(std::move(column));
  }
  columns.push_back({{"elements"}, -1, true});
  for (int64_t count : elements) columns.back().cells.push_back(absl::StrCat(count));

  const auto too_wide = [&columns] {
    size_t width = 0;
    for (const Column& column : columns) width += Longest(column.cells) + 2;
    return width > kColumns + 2;
  };
  size_t dropped = 0;
  for (const bool also_sharded : {false, true}) {
    for (size_t c = columns.size(); c-- > 0 && too_wide();) {
      if (columns[c].dim < 0 || (columns[c].sharded && !also_sharded)) continue;
      columns.erase(columns.begin() + static_cast<int64_t>(c));
      ++dropped;
    }
  }

  std::string out;
  for (size_t row = 0; row <= static_cast<size_t>(devices); ++row) {
    std::string line;
    for (const Column& column : columns) {
      if (&column == &columns.back()) {
        absl::StrAppend(&line, std::string(Longest(column.cells) - column.cells[row].size(), ' '), column.cells[row]);
      } else {
        absl::StrAppend(&line, Pad(column.cells[row], Longest(column.cells) + 2));
      }
    }
    absl::StrAppend(&out, line, "\n");
  }
  if (mesh.size() > devices) absl::StrAppend(&out, "... ", mesh.size() - devices, " more\n");
  if (dropped > 0) {
    absl::StrAppend(&out, "(", dropped, dropped == 1 ? " dimension is" : " dimensions are", " not listed)\n");
  }
  return out;
}

std::string DrawDevice(const Layout& layout, int64_t device) {
  const Mesh& mesh = layout.mesh();
  const std::optional<int64_t> position = mesh.Position(device);
  std::string out = OneLine("mesh", report::MeshText(mesh, 60));
  absl::StrAppend(&out, OneLine("layout", ToString(layout)));
  if (!position) {
    return absl::StrCat(out, Paragraph("device", absl::StrCat(device, " is not in the mesh, which has ",
                                                              report::MeshSentence(mesh), ": it holds nothing")));
  }
  absl::StrAppend(&out, Paragraph("device", absl::StrCat(device, ", ", report::CoordinatesText(mesh, *position))));
  int64_t elements = 1;
  int64_t offset = 0;
  std::vector<int> dims;
  for (int d = 0; d < layout.rank(); ++d) {
    const report::Held held = report::HeldAlong(layout, *position, d, kMaxIntervals);
    absl::StrAppend(&out,
                    Paragraph(absl::StrCat("dim ", d), absl::StrCat(report::IntervalsText(held, kMaxIntervals), ", ",
                                                                    held.length, " of ", layout.dim(d).size)));
    elements *= held.length;
    offset += report::OffsetOf(layout, d, *position);
    dims.push_back(d);
  }
  absl::StrAppend(
      &out, Paragraph("holds", elements == 0 ? std::string("nothing")
                                             : absl::StrCat(elements, " of ", layout.num_elements(),
                                                            layout.num_elements() == 1 ? " element" : " elements")));
  const std::string partial = report::PartialSentence(layout);
  if (!partial.empty()) absl::StrAppend(&out, Paragraph("partial", partial));
  if (elements == 0) return out;
  const report::DeviceSet holders = report::DevicesAt(mesh, report::FreeDigits(layout, dims), offset);
  if (holders.count == 1) {
    absl::StrAppend(&out, Paragraph("copies", "no other device holds these elements"));
  } else {
    absl::StrAppend(&out, Paragraph("copies", absl::StrCat(holders.count, " devices hold these elements: ",
                                                           report::DeviceText(holders, 50))));
  }
  return out;
}

}  // namespace

std::string DrawLayout(const Layout& layout, std::optional<int64_t> device) {
  if (device) return DrawDevice(layout, *device);
  std::string out = absl::StrCat(Header(layout), "\n");
  if (layout.num_elements() > 0) {
    const Grid grid(layout);
    absl::StrAppend(&out, grid.Draw());
    for (const std::string& note : report::Notes(layout, grid.view())) absl::StrAppend(&out, Paragraph("note", note));
    absl::StrAppend(&out, "\n");
  }
  return absl::StrCat(out, Table(layout));
}

}  // namespace reshard
