// What a launch of a kernel does, done on the host by the kernels' own code, block after block, from the arguments that
// the kernel gets.
#ifndef RESHARD_TESTS_CUDA_RUN_ON_HOST_H_
#define RESHARD_TESTS_CUDA_RUN_ON_HOST_H_

#include <cstdint>
#include <vector>

#include "runtime/cuda/kernel_code.h"

namespace reshard::testing {

void RunCopyOnHost(const CopyEntry* entries, const uint32_t* first_chunk, uint32_t entry_count,
                   const KernelBases& bases);
void RunReduceOnHost(const ReduceEntry* entries, const uint32_t* first_chunk, uint32_t entry_count,
                     const KernelBases& bases);

// The parameter of a launch with these addresses, which must outlive it.
KernelBases BasesOf(const std::vector<uint64_t>& addresses);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_CUDA_RUN_ON_HOST_H_
