// The inner loops of reductions, one for each pair of operation and type.
#ifndef RESHARD_RUNTIME_HOST_REDUCE_KERNELS_H_
#define RESHARD_RUNTIME_HOST_REDUCE_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"
#include "reshard/runtime/strided_copy.h"

namespace reshard::host {

// out[i] = op over k of in[k][i], for i < elements. Steps are the bytes from one element to the next. After a streaming
// reduction other threads see the result only once FinishStreaming has been called.
using ReduceRowFn = void (*)(const char* const* in, const int64_t* in_steps, size_t contributions, char* out,
                             int64_t out_step, int64_t elements, CopyMode mode);

// The kernel for a pair; null for pairs that CheckReduction refuses.
ReduceRowFn ReduceRowKernel(ReduceOp op, DType dtype);

}  // namespace reshard::host

#endif  // RESHARD_RUNTIME_HOST_REDUCE_KERNELS_H_
