#include "reshard/planner/chunks.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/layout/text.h"

namespace reshard {

int64_t LargestBlock(const Layout& layout, int dim) {
  const DimLayout& cut = layout.dim(dim);
  if (layout.slot_dim() == dim || cut.cut_before_flattened()) return 0;
  int64_t block = cut.size;
  for (const Factor& factor : cut.factors) {
    if (factor.kind == Factor::Kind::kSizes || factor.parts() < 1 || block % factor.parts() != 0) return 0;
    block /= factor.parts();
  }
  return block;
}

absl::StatusOr<Layout> OfChunk(const Layout& layout, const Chunks& chunks) {
  const int64_t largest = LargestBlock(layout, chunks.dim);
  if (largest == 0 || chunks.block < 1 || largest % chunks.block != 0 || chunks.block % chunks.count != 0) {
    return absl::InvalidArgumentError(absl::StrCat("dimension ", chunks.dim, " of ", ToString(layout),
                                                   " does not consist of blocks of ", chunks.block, " in ",
                                                   chunks.count, " chunks"));
  }
  std::vector<DimLayout> dims = layout.dims();
  const auto at = dims.begin() + chunks.dim;
  at->size /= chunks.block;
  at->flattened.clear();
  dims.insert(at + 1, {chunks.block / chunks.count, {}});
  return Layout::Create(layout.mesh(), std::move(dims), layout.partial());
}

}  // namespace reshard
