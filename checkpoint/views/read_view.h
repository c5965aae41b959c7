// Reads boxes of views.
#ifndef RESHARD_CHECKPOINT_VIEWS_READ_VIEW_H_
#define RESHARD_CHECKPOINT_VIEWS_READ_VIEW_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "checkpoint/views/node.h"

namespace reshard::views {

// Reads the elements of a box of the tensor-th tensor, dense and row-major.
using TensorReader = absl::FunctionRef<absl::Status(int64_t tensor, absl::Span<const int64_t> offset,
                                                    absl::Span<const int64_t> size, absl::Span<char> out)>;

// A read has at most this many bytes, or as many as what it is read for.
inline constexpr int64_t kLeastRead = int64_t{64} << 10;
// The number of buffers of that length that ReadView has: what is read, and the same cast; if something is dequantized,
// also its scales, and what reading its inputs takes.
int64_t ReadBuffers(const Node& view);

// Reads a box of a view into `out`, which has exactly its bytes. Beside `out` this takes the memory of ReadBuffers, and
// what `read` takes. What lies between wanted elements is read along with them where that costs less than skipping it.
// Errors are those of `read`.
absl::Status ReadView(const Node& view, absl::Span<const int64_t> offset, absl::Span<const int64_t> size,
                      TensorReader read, absl::Span<char> out);

}  // namespace reshard::views

#endif  // RESHARD_CHECKPOINT_VIEWS_READ_VIEW_H_
