// What the chunks of a tensor look like, in a few words.
#ifndef RESHARD_CHECKPOINT_DESCRIBE_H_
#define RESHARD_CHECKPOINT_DESCRIBE_H_

#include <string>

#include "reshard/checkpoint/catalog.h"

namespace reshard {

// From the boxes alone, empty ones left out:
//   "whole"                    one chunk, or nothing to store
//   "row blocks of 512"        cut along the first dimension only; the size of the largest
//   "column blocks of 7"       along the last one only
//   "blocks of 4"              a tensor of one dimension
//   "2x1x3 boxes"              a grid: as many as that along each dimension
//   "5 boxes, no grid"         anything else, overlaps and gaps too
// O(chunks log chunks) a dimension.
std::string DescribeChunks(const Catalog& catalog, const Catalog::Tensor& tensor);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_DESCRIBE_H_
