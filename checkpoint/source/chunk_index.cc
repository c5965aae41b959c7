#include "checkpoint/source/chunk_index.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace reshard::source {
namespace {

bool HasElements(const Catalog::Chunk& chunk) {
  return std::all_of(chunk.size.begin(), chunk.size.end(), [](int64_t size) { return size > 0; });
}

}  // namespace

ChunkIndex::ChunkIndex(const Catalog& catalog, const Catalog::Tensor& tensor) : catalog_(&catalog), tensor_(&tensor) {
  std::vector<int64_t> begins;
  size_t most = 0;
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    begins.clear();
    for (int64_t i = 0; i < tensor.num_chunks; ++i) begins.push_back(catalog.chunk(tensor, i).offset[d]);
    std::sort(begins.begin(), begins.end());
    const auto different = static_cast<size_t>(std::unique(begins.begin(), begins.end()) - begins.begin());
    if (different > most) {
      most = different;
      dim_ = d;
    }
  }
  for (int64_t i = 0; i < tensor.num_chunks; ++i) {
    if (HasElements(catalog.chunk(tensor, i))) order_.push_back(i);
  }
  if (tensor.shape.empty()) return;
  const auto begin = [&](int64_t i) { return catalog.chunk(tensor, i).offset[dim_]; };
  std::sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) {
    const int64_t at_a = begin(a);
    const int64_t at_b = begin(b);
    return at_a != at_b ? at_a < at_b : a < b;
  });
  int64_t end = 0;
  for (const int64_t i : order_) {
    const Catalog::Chunk chunk = catalog.chunk(tensor, i);
    end = std::max(end, chunk.offset[dim_] + chunk.size[dim_]);
    begins_.push_back(chunk.offset[dim_]);
    ends_so_far_.push_back(end);
  }
}

std::vector<int64_t> ChunkIndex::Overlapping(absl::Span<const int64_t> offset, absl::Span<const int64_t> size) const {
  if (tensor_->shape.empty()) return order_;
  std::vector<int64_t> found;
  const auto first = std::upper_bound(ends_so_far_.begin(), ends_so_far_.end(), offset[dim_]) - ends_so_far_.begin();
  for (auto k = static_cast<size_t>(first); k < order_.size() && begins_[k] < offset[dim_] + size[dim_]; ++k) {
    const Catalog::Chunk chunk = catalog_->chunk(*tensor_, order_[k]);
    bool overlaps = true;
    for (size_t d = 0; d < offset.size() && overlaps; ++d) {
      overlaps = chunk.offset[d] < offset[d] + size[d] && offset[d] < chunk.offset[d] + chunk.size[d];
    }
    if (overlaps) found.push_back(order_[k]);
  }
  return found;
}

}  // namespace reshard::source
