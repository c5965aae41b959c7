// Reductions with random and special values, for tests of reduce tables on the host and on a GPU.
#ifndef RESHARD_TESTS_RUNTIME_CUDA_REDUCE_PROBLEMS_H_
#define RESHARD_TESTS_RUNTIME_CUDA_REDUCE_PROBLEMS_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "runtime/cuda/copy_table.h"

namespace reshard::testing {

inline constexpr ReduceOp kReduceOps[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax,
                                          ReduceOp::kProd};

struct ReduceProblem {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  int64_t elements = 0;
  int64_t members = 1;
  int64_t pitch = 0;
  std::vector<char> in;
  std::vector<char> before;  // what the result's buffer holds
  int64_t at = 0;            // where contributions and result start in their buffers
};

// `misalignment` and `gap`, which is between contributions, in bytes.
ReduceProblem RandomReduction(std::mt19937_64& random, DType dtype, ReduceOp op, int64_t elements, int64_t members,
                              int64_t misalignment, int64_t gap);

// Problems that have every alignment and several numbers of members, for every operation of the type.
std::vector<ReduceProblem> AllReductions(std::mt19937_64& random, DType dtype);

// What differs between the result's buffer and what ReduceBox makes of it; empty when nothing does. The payload of NaNs
// is free.
std::string Difference(const ReduceProblem& problem, const std::vector<char>& out);

// All problems as one table: problem i reads from base 2i and writes to base 2i+1, which are base_at[...] bytes behind
// the start of the buffers.
struct ReduceLaunch {
  cuda::ReduceTable table;
  std::vector<int64_t> base_at;
};
ReduceLaunch LaunchOf(std::mt19937_64& random, const std::vector<ReduceProblem>& problems);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_RUNTIME_CUDA_REDUCE_PROBLEMS_H_
