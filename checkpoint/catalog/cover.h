// Whether boxes cover a tensor exactly once.
#ifndef RESHARD_CHECKPOINT_CATALOG_COVER_H_
#define RESHARD_CHECKPOINT_CATALOG_COVER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace reshard::catalog {

struct CoverFault {
  std::vector<int64_t> index;  // an element that is in no box, or in several
  bool twice = false;          // in several
};

// Nothing when every element of `shape` is in exactly one of `count` boxes. `boxes` has the offset, then the size, of
// each; all lie inside the shape; empty ones do not matter.
//
// Boxes cover a region exactly once if and only if their volumes add up to its volume and the same holds in each part
// that the region is cut into. Regions are cut where no box is cut in two, into as many parts as that gives; where
// there is no such place or it gives little, at the median of the cuts. So each box of a grid is looked at once
// per dimension.
std::optional<CoverFault> FindCoverFault(absl::Span<const int64_t> shape, absl::Span<const int64_t> boxes,
                                         int64_t count);

}  // namespace reshard::catalog

#endif  // RESHARD_CHECKPOINT_CATALOG_COVER_H_
