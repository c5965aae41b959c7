// The inner loop of every copy: rows of contiguous bytes at a fixed distance from each other.
#ifndef RESHARD_RUNTIME_HOST_COPY_ROWS_H_
#define RESHARD_RUNTIME_HOST_COPY_ROWS_H_

#include <cstdint>

#include "reshard/runtime/strided_copy.h"

namespace reshard::host {

// Copies `rows` rows of `bytes` bytes; row i goes from from + i*from_step to to + i*to_step. After a streaming copy
// other threads see the rows only once FinishStreaming (stream_rows.h) has been called.
void CopyRows(const char* from, char* to, int64_t rows, int64_t bytes, int64_t from_step, int64_t to_step,
              CopyMode mode);

}  // namespace reshard::host

#endif  // RESHARD_RUNTIME_HOST_COPY_ROWS_H_
