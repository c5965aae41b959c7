// What a launch of a kernel does, done on the host by the kernels' own code, block after block, from the arguments that
// the kernel gets.
#ifndef RESHARD_TESTS_FAKES_RUN_ON_HOST_H_
#define RESHARD_TESTS_FAKES_RUN_ON_HOST_H_

#include <cstdint>
#include <vector>

#include "runtime/cuda/kernel_code.h"

namespace reshard::testing {

void RunCopyOnHost(const cuda::CopyEntry* entries, const uint32_t* first_chunk, uint32_t entry_count,
                   const cuda::KernelBases& bases);
void RunReduceOnHost(const cuda::ReduceEntry* entries, const uint32_t* first_chunk, uint32_t entry_count,
                     const cuda::KernelBases& bases);

// The parameter of a launch with these addresses, which must outlive it.
cuda::KernelBases BasesOf(const std::vector<uint64_t>& addresses);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_FAKES_RUN_ON_HOST_H_
