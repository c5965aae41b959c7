// What both pictures of a layout share: which dimensions are drawn, into which cells, and the sentences beside them.
#ifndef RESHARD_PLANNER_REPORT_VIEW_H_
#define RESHARD_PLANNER_REPORT_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/report/blocks.h"
#include "reshard/layout/layout.h"

namespace reshard::report {

// The dimensions to draw, at most two: all of them up to rank 2, else the first that are sharded in any of the layouts,
// which have the same rank.
std::vector<int> DrawnDims(const std::vector<const Layout*>& layouts);

// A grid of cells over one or two dimensions. One dimension is the columns; without any the grid is one cell.
struct View {
  int row_dim = -1;  // -1: one row that stands for the whole tensor
  int col_dim = -1;
  DimBlocks rows;  // both empty when the tensor has no elements
  DimBlocks cols;
  std::vector<Digit> free;  // of a device's position within a cell

  bool elided(size_t row, size_t col) const { return rows.blocks[row].elided || cols.blocks[col].elided; }
  // Of the devices that hold a cell that is not elided.
  int64_t offset(size_t row, size_t col) const { return rows.blocks[row].offset + cols.blocks[col].offset; }
};
View MakeView(const Layout& layout, const std::vector<int>& drawn, size_t max_rows, size_t max_cols);

// What the grid does not show, a sentence each.
std::vector<std::string> Notes(const Layout& layout, const View& view);

// Whether devices differ in what they hold along dimension d.
bool IsSharded(const Layout& layout, int d);

// The mesh in at most about `width` characters, however many ids it lists.
std::string MeshText(const Mesh& mesh, size_t width);
// "8 devices (0-7)"
std::string MeshSentence(const Mesh& mesh);
// "dims 0, 2", shortened where there are many.
std::string DimList(const std::vector<int>& dims);
// "32x128, 4096 of 65536 elements"; "at most ..." when shards differ in size.
std::string LocalSentence(const Layout& layout);
// "each element is on 16 devices"
std::string CopiesSentence(const Layout& layout);
// "each value is a partial sum over Y: 4 contributions"; empty when nothing is partial.
std::string PartialSentence(const Layout& layout);
// "device 4 holds nothing"; empty when every device holds something, or when it would take long to find out.
std::string EmptySentence(const Layout& layout);

// "X=1 Y=0", the whole mesh's coordinates of a position; "-" without axes.
std::string CoordinatesText(const Mesh& mesh, int64_t position);
// "2x8"; "scalar" for a 0-d tensor.
std::string ShapeText(const std::vector<int64_t>& shape);
// "[0,2) [8,10)", at most `limit` intervals, then "... 14 more".
std::string IntervalsText(const Held& held, size_t limit);
// At most `width` characters, the rest as "...". `text` is ASCII.
std::string Clip(std::string_view text, size_t width);

}  // namespace reshard::report

#endif  // RESHARD_PLANNER_REPORT_VIEW_H_
