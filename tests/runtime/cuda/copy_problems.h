// Random and chosen copies with their fragments, for tests of copy tables on the host and on a GPU.
#ifndef RESHARD_TESTS_RUNTIME_CUDA_COPY_PROBLEMS_H_
#define RESHARD_TESTS_RUNTIME_CUDA_COPY_PROBLEMS_H_

#include <cstdint>
#include <random>
#include <vector>

#include "reshard/runtime/strided_copy.h"
#include "reshard/runtime/tensor_view.h"
#include "runtime/cuda/copy_table.h"

namespace reshard::testing {

// A fragment in a buffer of its own, with bytes before and after it that nothing may touch: index (0, 0, ..) is at
// `origin`, which is wherever alignment and negative strides put it.
struct Fragment {
  std::vector<char> bytes;
  int64_t origin = 0;
};

struct CopyProblem {
  int64_t element_size = 4;
  Fragment from;
  Fragment to;
  StridedCopy copy;
};

// Up to `most_dims` dimensions with runs of up to `longest` indices; any element size, alignment, order of dimensions
// in memory; may read or write backwards, or read the same again and again, and may be empty.
CopyProblem RandomCopy(std::mt19937_64& random, size_t most_dims, int64_t longest);

// All of a shape, at such distances (in bytes) from a vector's alignment.
CopyProblem WholeCopy(std::mt19937_64& random, const Dims& shape, int64_t element_size, const Dims& from_strides,
                      const Dims& to_strides, int64_t from_misalignment = 0, int64_t to_misalignment = 0);

// What the destination's buffer holds after the copy.
std::vector<char> Expected(const CopyProblem& problem);

// All problems as one table: problem i reads from base 2i and writes to base 2i+1, which are base_at[...] bytes behind
// the start of the buffers.
struct CopyLaunch {
  cuda::CopyTable table;
  std::vector<int64_t> base_at;
};
CopyLaunch LaunchOf(std::mt19937_64& random, const std::vector<CopyProblem>& problems,
                    int64_t entry_limit = cuda::kCopyEntryLimit);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_RUNTIME_CUDA_COPY_PROBLEMS_H_
