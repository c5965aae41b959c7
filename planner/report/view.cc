#include "planner/report/view.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "layout/cut.h"
#include "reshard/layout/text.h"
#include "reshard/planner/units.h"

namespace reshard::report {
namespace {

// EmptySentence looks at every device: only where that is quick.
constexpr int64_t kMaxDevicesSearched = 1024;
constexpr int64_t kMaxIntervalsSearched = 1024;

// The blocks of a dimension, or one that stands for the whole tensor.
DimBlocks BlocksOrWhole(const Layout& layout, int d, size_t limit) {
  if (layout.num_elements() == 0) return {};
  if (d >= 0) return BlocksOf(layout, d, limit);
  return {{Block{{0, 1}, 0, false}}, 1};
}

const char* NameOfPartial(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "partial sum";
    case ReduceOp::kAvg:
      return "partial average";
    case ReduceOp::kMin:
      return "partial minimum";
    case ReduceOp::kMax:
      return "partial maximum";
    case ReduceOp::kProd:
      return "partial product";
  }
  return "partial value";
}

int64_t Contributions(const Layout& layout) {
  int64_t contributions = 1;
  if (layout.partial()) {
    for (const AxisRef& ref : layout.partial()->axes) contributions *= ref.size;
  }
  return contributions;
}

std::vector<int> AllDims(const Layout& layout) {
  std::vector<int> dims;
  for (int d = 0; d < layout.rank(); ++d) dims.push_back(d);
  return dims;
}

bool EvenSlots(const Factor& table) {
  std::vector<int64_t> slots;
  for (const std::vector<Interval>& runs : table.slots) slots.push_back(layout::NumSlots(runs));
  return std::all_of(slots.begin(), slots.end(), [&](int64_t count) { return count == slots.front(); });
}

// Elements that every device holds along the dimension, if all hold the same number; -1 if not.
int64_t EvenLength(const DimLayout& dim) {
  int64_t held = dim.size;
  if (dim.cut_before_flattened()) {
    held = 1;
    for (const DimLayout& inner : dim.flattened) {
      const int64_t length = EvenLength(inner);
      if (length < 0) return -1;
      held *= length;
    }
  }
  int64_t rest = held;  // of each interval
  for (const Factor& factor : dim.factors) {
    if (factor.kind == Factor::Kind::kSlots) return EvenSlots(factor) ? layout::LargestShard(dim) : -1;
    const auto& sizes = factor.sizes;
    if (std::any_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size != sizes[0]; })) return -1;
    if (rest % factor.parts() != 0) return -1;
    rest /= factor.parts();
    if (factor.has_axis()) held /= factor.parts();
  }
  return held;
}

bool Even(const Layout& layout) {
  return std::all_of(layout.dims().begin(), layout.dims().end(),
                     [](const DimLayout& dim) { return EvenLength(dim) >= 0; });
}

}  // namespace

bool IsSharded(const Layout& layout, int d) {
  const DimLayout& dim = layout.dim(d);
  return !layout::EffectiveFactors(dim).empty() || dim.cut_before_flattened();
}

std::vector<int> DrawnDims(const std::vector<const Layout*>& layouts) {
  const int rank = layouts.front()->rank();
  std::vector<int> drawn;
  for (int d = 0; d < rank && drawn.size() < 2; ++d) {
    const auto sharded = [d](const Layout* layout) { return IsSharded(*layout, d); };
    if (rank <= 2 || std::any_of(layouts.begin(), layouts.end(), sharded)) drawn.push_back(d);
  }
  return drawn;
}

View MakeView(const Layout& layout, const std::vector<int>& drawn, size_t max_rows, size_t max_cols) {
  View view;
  if (drawn.size() == 2) view.row_dim = drawn[0];
  if (!drawn.empty()) view.col_dim = drawn.back();
  view.rows = BlocksOrWhole(layout, view.row_dim, max_rows);
  view.cols = BlocksOrWhole(layout, view.col_dim, max_cols);
  view.free = FreeDigits(layout, drawn);
  return view;
}

std::vector<std::string> Notes(const Layout& layout, const View& view) {
  std::vector<std::string> notes;
  if (layout.rank() > 2) {
    std::vector<int> drawn;
    std::vector<int> sharded;
    std::vector<int> whole;
    for (int d = 0; d < layout.rank(); ++d) {
      const bool is_drawn = d == view.row_dim || d == view.col_dim;
      (is_drawn ? drawn : IsSharded(layout, d) ? sharded : whole).push_back(d);
    }
    std::string note = absl::StrCat("rank ", layout.rank(), ": ");
    if (drawn.empty()) {
      absl::StrAppend(&note, "no dimension is sharded");
    } else {
      absl::StrAppend(&note, DimList(drawn), drawn.size() == 1 ? " is drawn" : " are drawn");
      if (!whole.empty()) absl::StrAppend(&note, "; every device has the whole of ", DimList(whole));
    }
    notes.push_back(std::move(note));
    if (!sharded.empty()) {
      const bool one = sharded.size() == 1;
      notes.push_back(absl::StrCat(DimList(sharded), one ? " is" : " are",
                                   " sharded too: the devices in a cell hold different parts of ",
                                   one ? "it" : "them"));
    }
  }
  if (layout.slot_dim() && (layout.slot_dim() == view.row_dim || layout.slot_dim() == view.col_dim)) {
    notes.push_back(absl::StrCat("dim ", *layout.slot_dim(),
                                 " is cut by a slot table: its blocks are slots, numbered through all devices; the "
                                 "table of devices lists the indices in them"));
  }
  for (const bool is_row : {true, false}) {
    const DimBlocks& dim = is_row ? view.rows : view.cols;
    const auto shown = static_cast<int64_t>(dim.blocks.size()) - 1;
    if (std::none_of(dim.blocks.begin(), dim.blocks.end(), [](const Block& block) { return block.elided; })) continue;
    const std::string count = dim.count < 0 ? "too many blocks to count" : absl::StrCat(dim.count, " blocks");
    notes.push_back(
        absl::StrCat("dim ", is_row ? view.row_dim : view.col_dim, " has ", count, "; ", shown, " are drawn"));
  }
  std::string empty = EmptySentence(layout);
  if (!empty.empty()) notes.push_back(std::move(empty));
  return notes;
}

std::string DimList(const std::vector<int>& dims) {
  std::vector<std::string> names;
  for (int d : dims) names.push_back(absl::StrCat(d));
  if (names.size() > 8) {
    const std::string last = names.back();
    names.resize(6);
    names.emplace_back("...");
    names.push_back(last);
  }
  return absl::StrCat(dims.size() == 1 ? "dim " : "dims ", absl::StrJoin(names, ", "));
}

std::string MeshText(const Mesh& mesh, size_t width) {
  if (mesh.contiguous() || mesh.size() <= 1024) return Clip(ToString(mesh), width);
  const absl::StatusOr<Mesh> axes = Mesh::Create(mesh.axes());
  return absl::StrCat(axes.ok() ? Clip(ToString(*axes), width) : "", "@[", mesh.Device(0), ",", mesh.Device(1),
                      ",...]");
}

std::string MeshSentence(const Mesh& mesh) {
  return absl::StrCat(Counted(mesh.size(), "device"), " (", DeviceText(AllDevices(mesh), 40), ")");
}

std::string LocalSentence(const Layout& layout) {
  const std::vector<int64_t> shape = layout.MaxLocalShape();
  int64_t elements = 1;  // does not overflow, see Layout::MaxLocalElements
  for (int64_t size : shape) elements *= size;
  return absl::StrCat(Even(layout) ? "" : "at most ", ShapeText(shape), ", ", elements, " of ",
                      Counted(layout.num_elements(), "element"));
}

namespace {

// The fewest and the most coordinates of a slot table that hold one index.
std::pair<int64_t, int64_t> HoldersOfSlots(const DimLayout& dim) {
  std::map<int64_t, int64_t> change;  // of the number of holders, at an index
  for (std::vector<Interval> runs : dim.factors.front().slots) {
    std::sort(runs.begin(), runs.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    int64_t reached = 0;
    for (const Interval& run : runs) {
      const int64_t begin = std::max(run.begin, reached);
      if (begin >= run.end) continue;
      ++change[begin];
      --change[run.end];
      reached = run.end;
    }
  }
  int64_t holders = 0, fewest = std::numeric_limits<int64_t>::max(), most = 0;
  for (const auto& [index, by] : change) {
    holders += by;
    if (index == dim.size) break;
    fewest = std::min(fewest, holders);
    most = std::max(most, holders);
  }
  return {fewest, most};
}

}  // namespace

std::string CopiesSentence(const Layout& layout) {
  if (layout.num_elements() == 0) return "there is nothing to hold";
  int64_t copies = 1;
  for (const Digit& digit : FreeDigits(layout, AllDims(layout))) copies *= digit.size;
  if (layout.slot_dim()) {
    const auto [fewest, most] = HoldersOfSlots(layout.dim(*layout.slot_dim()));
    if (fewest != most) {
      return absl::StrCat("each element is on ", fewest * copies, " to ", Counted(most * copies, "device"));
    }
    copies *= most;
  }
  return absl::StrCat("each element is on ", Counted(copies, "device"));
}

std::string PartialSentence(const Layout& layout) {
  if (!layout.partial()) return "";
  std::vector<std::string> axes;
  for (const AxisRef& ref : layout.partial()->axes) axes.push_back(ToString(layout.mesh(), ref));
  return absl::StrCat("each value is a ", NameOfPartial(layout.partial()->op), " over ",
                      Clip(absl::StrJoin(axes, ","), 40), ": ", Counted(Contributions(layout), "contribution"));
}

std::string EmptySentence(const Layout& layout) {
  const Mesh& mesh = layout.mesh();
  if (layout.num_elements() == 0 || Even(layout) || mesh.size() > kMaxDevicesSearched) return "";
  for (const DimLayout& dim : layout.dims()) {
    int64_t intervals = dim.cut_before_flattened() ? dim.size : 1;
    for (const Factor& factor : dim.factors) {
      if (!factor.has_axis()) intervals *= factor.blocks;
    }
    if (intervals > kMaxIntervalsSearched) return "";
  }
  std::map<std::pair<int, int64_t>, bool> empty;  // by dimension and offset
  std::vector<int64_t> ids;
  for (int64_t position = 0; position < mesh.size(); ++position) {
    bool holds_nothing = false;
    for (int d = 0; d < layout.rank(); ++d) {
      if (!IsSharded(layout, d)) continue;
      const auto [found, is_new] = empty.try_emplace({d, OffsetOf(layout, d, position)}, false);
      if (is_new) found->second = HeldAlong(layout, position, d, 0).count == 0;
      holds_nothing = holds_nothing || found->second;
    }
    if (holds_nothing) ids.push_back(mesh.Device(position));
  }
  if (ids.empty()) return "";
  const bool one = ids.size() == 1;
  return absl::StrCat(one ? "device " : "devices ", DeviceText(DevicesOf(std::move(ids)), 60),
                      one ? " holds nothing" : " hold nothing");
}

std::string CoordinatesText(const Mesh& mesh, int64_t position) {
  std::vector<std::string> out;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    out.push_back(absl::StrCat(mesh.axis(axis).name, "=", mesh.Coordinate(position, axis)));
  }
  return out.empty() ? "-" : absl::StrJoin(out, " ");
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return shape.empty() ? "scalar" : absl::StrJoin(shape, "x");
}

std::string IntervalsText(const Held& held, size_t limit) {
  if (held.count == 0) return "nothing";
  std::vector<std::string> out;
  const size_t shown = std::min(limit, held.first.size());
  for (size_t i = 0; i < shown; ++i) {
    out.push_back(absl::StrCat("[", held.first[i].begin, ",", held.first[i].end, ")"));
  }
  const int64_t more = held.count - static_cast<int64_t>(shown);
  if (more > 0) out.push_back(absl::StrCat("... ", more, " more"));
  return absl::StrJoin(out, " ");
}

std::string Clip(std::string_view text, size_t width) {
  if (text.size() <= width) return std::string(text);
  return absl::StrCat(std::string(text.substr(0, width - std::min<size_t>(width, 3))), "...");
}

}  // namespace reshard::report
