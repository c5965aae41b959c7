// The enumerated form of a layout: for each dimension a table of distinct shards, and for each device the row it holds.
//
// Invariants: the rows of one dimension are pairwise disjoint; together they cover [0, size); intervals of a row are
// sorted, non-empty and do not touch. A dimension's row number is the mixed-radix number of the device's digits along
// the dimension's axis factors, major first, so a table has prod(axis sizes in that dimension) rows, whatever the mesh.
#ifndef RESHARD_LAYOUT_SHARD_MAP_H_
#define RESHARD_LAYOUT_SHARD_MAP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"

namespace reshard {

// One dimension: which axis digits choose the row, and what each row holds.
struct DimShards {
  int64_t size = 0;             // global elements
  std::vector<AxisRef> digits;  // major first
  std::vector<int64_t> first;   // row r is intervals[first[r] .. first[r+1])
  std::vector<Interval> intervals;
  std::vector<int64_t> length;  // elements of row r

  int64_t num_rows() const { return static_cast<int64_t>(length.size()); }
};

class ShardMap {
 public:
  // ResourceExhausted when a dimension has more than 2^24 non-empty intervals over all rows.
  static absl::StatusOr<ShardMap> Create(const Layout& layout);

  const Mesh& mesh() const { return *mesh_; }
  int rank() const { return static_cast<int>(dims_.size()); }
  const DimShards& dim(int d) const { return dims_[static_cast<size_t>(d)]; }
  // The row of dimension d that the device at `position` holds.
  int64_t Row(int64_t position, int d) const;
  // Elements of the fragment at `position`.
  int64_t LocalElements(int64_t position) const;

 private:
  std::shared_ptr<const Mesh> mesh_;
  std::vector<DimShards> dims_;
};

// Two layouts are equivalent when every device id holds the same elements and the pending reductions are the same
// (same op, same axes; over different meshes only layouts without pending reductions are compared).
// ResourceExhausted as for ShardMap::Create.
absl::StatusOr<bool> Equivalent(const Layout& a, const Layout& b);

}  // namespace reshard

#endif  // RESHARD_LAYOUT_SHARD_MAP_H_
