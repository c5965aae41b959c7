#include "reshard/checkpoint/describe.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace reshard {
namespace {

// Where the boxes begin and end along one dimension, each once, sorted.
using Cuts = std::vector<std::pair<int64_t, int64_t>>;

bool Tiles(const Cuts& cuts, int64_t size) {
  int64_t covered = 0;
  for (const auto& [begin, end] : cuts) {
    if (begin != covered) return false;
    covered = end;
  }
  return covered == size;
}

}  // namespace

std::string DescribeChunks(const Catalog& catalog, const Catalog::Tensor& tensor) {
  const size_t rank = tensor.shape.size();
  std::vector<Catalog::Chunk> chunks;
  for (int64_t i = 0; i < tensor.num_chunks; ++i) {
    const Catalog::Chunk chunk = catalog.chunk(tensor, i);
    if (std::find(chunk.size.begin(), chunk.size.end(), 0) == chunk.size.end()) chunks.push_back(chunk);
  }
  const bool empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
  if (empty) return "whole";

  const std::string other = absl::StrCat(chunks.size(), " boxes, no grid");
  std::vector<Cuts> cuts(rank);
  std::vector<size_t> grid(rank);
  size_t cells = 1, cut_dimensions = 0, cut = 0;
  for (size_t d = 0; d < rank; ++d) {
    for (const Catalog::Chunk& chunk : chunks) cuts[d].emplace_back(chunk.offset[d], chunk.offset[d] + chunk.size[d]);
    std::sort(cuts[d].begin(), cuts[d].end());
    cuts[d].erase(std::unique(cuts[d].begin(), cuts[d].end()), cuts[d].end());
    grid[d] = cuts[d].size();
    // A grid has as many cells as chunks: once the product exceeds that, this is not a grid.
    if (!Tiles(cuts[d], tensor.shape[d]) || grid[d] > chunks.size() / cells) return other;
    cells *= grid[d];
    if (grid[d] > 1) {
      ++cut_dimensions;
      cut = d;
    }
  }
  if (cells != chunks.size()) return other;
  // Each box is a cell of the grid. If no two are the same, they are all of the cells, as there are as many.
  std::vector<absl::Span<const int64_t>> offsets;
  for (const Catalog::Chunk& chunk : chunks) offsets.push_back(chunk.offset);
  std::sort(offsets.begin(), offsets.end());
  if (std::adjacent_find(offsets.begin(), offsets.end()) != offsets.end()) return other;

  if (cut_dimensions == 0) return "whole";
  if (cut_dimensions == 1 && (cut == 0 || cut + 1 == rank)) {
    int64_t largest = 0;
    for (const auto& [begin, end] : cuts[cut]) largest = std::max(largest, end - begin);
    return absl::StrCat(rank == 1 ? "" : cut == 0 ? "row " : "column ", "blocks of ", largest);
  }
  return absl::StrCat(absl::StrJoin(grid, "x"), " boxes");
}

std::string_view DTypeText(const Catalog::Tensor& tensor) {
  return tensor.dtype ? Name(*tensor.dtype) : tensor.stored_dtype;
}

}  // namespace reshard
