// Finds the chunks of a tensor that intersect a box.
#ifndef RESHARD_CHECKPOINT_SOURCE_CHUNK_INDEX_H_
#define RESHARD_CHECKPOINT_SOURCE_CHUNK_INDEX_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::source {

class ChunkIndex {
 public:
  // Sorts the chunks along the dimension in which they have the most different offsets. For chunks that are rows,
  // columns or a grid, a query then costs its number of results, plus a logarithm and the other chunks of those rows.
  // `catalog` must outlive it.
  ChunkIndex(const Catalog& catalog, const Catalog::Tensor& tensor);

  // The numbers, ascending along that dimension, of the chunks that overlap the box. Chunks without elements overlap
  // nothing.
  std::vector<int64_t> Overlapping(absl::Span<const int64_t> offset, absl::Span<const int64_t> size) const;

 private:
  const Catalog* catalog_;
  const Catalog::Tensor* tensor_;
  size_t dim_ = 0;
  std::vector<int64_t> order_;        // chunk numbers by begin
  std::vector<int64_t> begins_;       // along dim_, in that order
  std::vector<int64_t> ends_so_far_;  // the largest end of this and all before it
};

}  // namespace reshard::source

#endif  // RESHARD_CHECKPOINT_SOURCE_CHUNK_INDEX_H_
