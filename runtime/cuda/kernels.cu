// The kernels, around the code that they share with the host. Their names and launches: kernel_code.h.
//
// Both use 64 registers (the copy kernel 80 on sm_80 and sm_100), none of them spilled: three or four blocks a
// processor, with 16 KiB of loads under way each. Bandwidth times latency asks for some 10 KiB a processor.
#include <cstdint>

#include "runtime/cuda/copy_code.h"
#include "runtime/cuda/kernel_code.h"
#include "runtime/cuda/reduce_code.h"

using reshard::cuda::CopyEntry;
using reshard::cuda::KernelBases;
using reshard::cuda::ReduceEntry;

extern "C" __global__ void __launch_bounds__(reshard::cuda::kBlockThreads)
    reshard_copy(const CopyEntry* __restrict__ entries, const uint32_t* __restrict__ first_chunk, uint32_t entry_count,
                 const __grid_constant__ KernelBases bases) {
  __shared__ alignas(16) char shared[reshard::cuda::kTileBytes];
  const uint32_t entry = reshard::cuda::EntryOfChunk(first_chunk, entry_count, blockIdx.x);
  reshard::cuda::CopyFirstPhase(entries, first_chunk, entry, bases, blockIdx.x, threadIdx.x, shared);
  if (!entries[entry].transposed) return;
  __syncthreads();
  reshard::cuda::CopySecondPhase(entries, first_chunk, entry, bases, blockIdx.x, threadIdx.x, shared);
}

extern "C" __global__ void __launch_bounds__(reshard::cuda::kBlockThreads, 4)
    reshard_reduce(const ReduceEntry* __restrict__ entries, const uint32_t* __restrict__ first_chunk,
                   uint32_t entry_count, const __grid_constant__ KernelBases bases) {
  const uint32_t entry = reshard::cuda::EntryOfChunk(first_chunk, entry_count, blockIdx.x);
  reshard::cuda::ReduceChunk(entries[entry], bases, blockIdx.x - first_chunk[entry], threadIdx.x);
}
