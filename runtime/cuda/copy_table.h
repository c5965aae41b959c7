// Many strided copies as one table that one kernel processes: all peers and all tensors of a step in one launch.
//
// A table holds what does not change from call to call: shapes, strides and offsets. Each launch brings the addresses
// where tensors and messages start, as a list of base addresses that the entries name by index. So a table is built and
// uploaded once per program step, and a call brings two addresses per tensor.
//
// Entries are plain structs that host and device read alike (see kernel_code.h, which is the code of the kernels for
// both).
#ifndef RESHARD_RUNTIME_CUDA_COPY_TABLE_H_
#define RESHARD_RUNTIME_CUDA_COPY_TABLE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "reshard/layout/dtype.h"
#include "reshard/layout/layout.h"
#include "reshard/planner/plan.h"
#include "reshard/runtime/strided_copy.h"
#include "runtime/cuda/kernel_code.h"

namespace reshard::cuda {

// One copy of a launch: from bases[from_base] + from_offset to bases[to_base] + to_offset (bytes).
struct CopyJob {
  const StridedCopy* copy = nullptr;  // need not outlive the table
  int from_base = 0;
  int64_t from_offset = 0;
  int to_base = 0;
  int64_t to_offset = 0;
};

// What the copy kernel reads. Blocks take chunks: first_chunk[i] is the number of the first chunk of entry i.
struct CopyTable {
  std::vector<CopyEntry> entries;
  std::vector<uint32_t> first_chunk;  // one more than entries: the last is the number of chunks
  int bases = 0;                      // length of the list of base addresses that a launch brings
  int64_t bytes = 0;                  // that are written

  bool empty() const { return entries.empty(); }
};

// Most bytes that an entry copies; counts in bytes have 31 bits in the kernel.
inline constexpr int64_t kCopyEntryLimit = int64_t{1} << 30;

// Post-condition: processing the table does what Run() of every job does. Jobs that copy nothing are left out.
// `entry_limit` is a multiple of 16, not above kCopyEntryLimit.
CopyTable MakeCopyTable(absl::Span<const CopyJob> jobs, int64_t entry_limit = kCopyEntryLimit);

// One reduction of a launch: out[e] = op over m of contribution m's element e, combined in the order of m, each at
// bases[in_base] + in_offset + m * pitch, all dense.
struct ReduceJob {
  int in_base = 0;
  int64_t in_offset = 0;  // bytes
  int64_t pitch = 0;      // bytes from one contribution to the next
  int64_t members = 0;
  int out_base = 0;
  int64_t out_offset = 0;  // bytes
  int64_t elements = 0;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
};

// What the reduce kernel reads, like CopyTable.
struct ReduceTable {
  std::vector<ReduceEntry> entries;
  std::vector<uint32_t> first_chunk;
  int bases = 0;

  bool empty() const { return entries.empty(); }
};

// Post-condition: processing the table writes what ReduceBox (runtime/host/reduce.h) writes, bit by bit except for the
// payload of NaNs. Jobs without elements are left out. Requires CheckReduction of every job.
ReduceTable MakeReduceTable(absl::Span<const ReduceJob> jobs);

}  // namespace reshard::cuda

#endif  // RESHARD_RUNTIME_CUDA_COPY_TABLE_H_
