// Describes the chunks and the dtype of a tensor in a few words.
#ifndef RESHARD_CHECKPOINT_DESCRIBE_H_
#define RESHARD_CHECKPOINT_DESCRIBE_H_

#include <string>
#include <string_view>

#include "reshard/checkpoint/catalog.h"

namespace reshard {

// Considers only the boxes, and skips empty ones:
//   "whole"                    one chunk, or no elements
//   "row blocks of 512"        split along the first dimension only; the size of the largest block
//   "column blocks of 7"       split along the last dimension only
//   "blocks of 4"              split, and the tensor has one dimension
//   "2x1x3 boxes"              a grid, with this many boxes along each dimension
//   "5 boxes, no grid"         anything else, overlaps and gaps included
// O(chunks log chunks) per dimension.
std::string DescribeChunks(const Catalog& catalog, const Catalog::Tensor& tensor);

// "bf16"; if this library has no such dtype, what the file calls it. Lives as long as the catalog.
std::string_view DTypeText(const Catalog::Tensor& tensor);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_DESCRIBE_H_
