// The enumerated form of a layout: for each dimension a table of its distinct shards, and for each device the row of
// that table that it holds.
//
// Invariants: the rows of one dimension are pairwise disjoint; together they cover [0, size); intervals of a row are
// sorted, non-empty and do not touch. In a dimension that a slot table cuts, rows may overlap; the intervals of a row
// are in slot order, may overlap too, and do not continue each other. A dimension's row number is the mixed-radix
// number of the device's digits along the dimension's axis factors, major first, so a table has prod(axis sizes in that
// dimension) rows, whatever the size of the mesh.
#ifndef RESHARD_LAYOUT_SHARD_MAP_H_
#define RESHARD_LAYOUT_SHARD_MAP_H_

#include <cassert>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"

namespace reshard {

// One dimension: which axis digits choose the row, and what each row holds.
struct DimShards {
  int64_t size = 0;                 // of the whole tensor, in elements
  std::vector<AxisRef> digits;      // what chooses the row, major first
  std::vector<int64_t> first;       // row r is intervals[first[r] .. first[r+1])
  std::vector<Interval> intervals;  // of all rows, one row after the other
  std::vector<int64_t> length;      // number of elements of row r
  bool slots = false;               // cut by a slot table

  struct IntervalOfRow {
    int32_t interval = 0;  // index into `intervals`
    int32_t row = 0;       // the row that it belongs to
  };
  // All intervals, sorted by where they begin in the tensor. Empty if `intervals` is already so, and for a slot table.
  std::vector<IntervalOfRow> ascending;

  // Product of the sizes of `digits`; at least 1.
  int64_t num_rows() const { return static_cast<int64_t>(length.size()); }
};

// Fills `ascending` of a table whose other fields are all set.
void PutInOrder(DimShards& shards);

// The tables of all dimensions.
class ShardMap {
 public:
  // ResourceExhausted if a dimension has more than 2^24 non-empty intervals over all rows.
  static absl::StatusOr<ShardMap> Create(const Layout& layout);

  // The layout's mesh, which the map keeps alive.
  const Mesh& mesh() const { return mesh_; }
  // Number of tensor dimensions.
  int rank() const { return static_cast<int>(dims_.size()); }
  // Requires 0 <= d < rank().
  const DimShards& dim(int d) const {
    assert(d >= 0 && d < rank());
    return dims_[d];
  }
  // The row of dimension d that the device at `position` holds.
  int64_t Row(int64_t position, int d) const;
  // Number of elements of the fragment at `position`.
  int64_t LocalElements(int64_t position) const;

 private:
  Mesh mesh_;
  std::vector<DimShards> dims_;
};

// True if every device id holds the same elements under both layouts and they are partial in the same way (same op,
// same axes). Over different meshes, layouts with partial values are never equivalent.
// ResourceExhausted as for ShardMap::Create.
absl::StatusOr<bool> Equivalent(const Layout& a, const Layout& b);

}  // namespace reshard

#endif  // RESHARD_LAYOUT_SHARD_MAP_H_
