// Reads boxes of views.
#ifndef RESHARD_CHECKPOINT_VIEWS_READ_VIEW_H_
#define RESHARD_CHECKPOINT_VIEWS_READ_VIEW_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "checkpoint/views/node.h"

namespace reshard::views {

// The elements of a box of the tensor-th tensor, dense and row-major.
using TensorReader = absl::FunctionRef<absl::Status(int64_t tensor, absl::Span<const int64_t> offset,
                                                    absl::Span<const int64_t> size, absl::Span<char> out)>;

// The same of a view: `out` has exactly the bytes of the box. Beside it this takes at most MemoryToRead(out.size())
// bytes, and what `read` takes. What lies between the elements that are wanted is read with them where that costs less
// than to leave it out. Errors are those of `read`.
absl::Status ReadView(const Node& view, absl::Span<const int64_t> offset, absl::Span<const int64_t> size,
                      TensorReader read, absl::Span<char> out);

int64_t MemoryToRead(int64_t bytes);

}  // namespace reshard::views

#endif  // RESHARD_CHECKPOINT_VIEWS_READ_VIEW_H_
