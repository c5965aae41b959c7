// Reads boxes of chunks whose elements lie in any order.
#ifndef RESHARD_CHECKPOINT_SOURCE_READ_BOX_H_
#define RESHARD_CHECKPOINT_SOURCE_READ_BOX_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "checkpoint/catalog/stored_elements.h"
#include "checkpoint/io/files.h"

namespace reshard::source {

// Reads the box of `size` elements at `offset` of the chunk into `out`, dense and row-major. Reads little more than the
// box: runs that are at most the gap of the file apart are read together; a box that is one run is read directly into
// `out`. Uses up to 4 MiB of memory. InvalidArgument: the box is not within the chunk, or `out` has another size.
// DataLoss, Unavailable: the file.
absl::Status ReadBox(const io::ReadFile& file, const catalog::StoredElements& chunk, absl::Span<const int64_t> offset,
                     absl::Span<const int64_t> size, absl::Span<char> out);

}  // namespace reshard::source

#endif  // RESHARD_CHECKPOINT_SOURCE_READ_BOX_H_
