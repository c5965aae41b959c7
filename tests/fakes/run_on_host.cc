#include "tests/fakes/run_on_host.h"

#include <algorithm>
#include <memory>

#include "runtime/cuda/copy_code.h"
#include "runtime/cuda/reduce_code.h"

namespace reshard::testing {

void RunCopyOnHost(const cuda::CopyEntry* entries, const uint32_t* first_chunk, uint32_t entry_count,
                   const cuda::KernelBases& bases) {
  struct alignas(16) Shared {
    char bytes[cuda::kTileBytes];
  };
  for (uint32_t chunk = 0; chunk < first_chunk[entry_count]; ++chunk) {
    const uint32_t entry = cuda::EntryOfChunk(first_chunk, entry_count, chunk);
    const auto shared = std::make_unique<Shared>();  // on its own, so that a sanitizer sees its end
    for (uint32_t thread = 0; thread < cuda::kBlockThreads; ++thread) {
      cuda::CopyFirstPhase(entries, first_chunk, entry, bases, chunk, thread, shared->bytes);
    }
    for (uint32_t thread = 0; thread < cuda::kBlockThreads; ++thread) {
      cuda::CopySecondPhase(entries, first_chunk, entry, bases, chunk, thread, shared->bytes);
    }
  }
}

void RunReduceOnHost(const cuda::ReduceEntry* entries, const uint32_t* first_chunk, uint32_t entry_count,
                     const cuda::KernelBases& bases) {
  for (uint32_t chunk = 0; chunk < first_chunk[entry_count]; ++chunk) {
    const uint32_t entry = cuda::EntryOfChunk(first_chunk, entry_count, chunk);
    for (uint32_t thread = 0; thread < cuda::kBlockThreads; ++thread) {
      cuda::ReduceChunk(entries[entry], bases, chunk - first_chunk[entry], thread);
    }
  }
}

cuda::KernelBases BasesOf(const std::vector<uint64_t>& addresses) {
  cuda::KernelBases bases{};
  if (addresses.size() > cuda::KernelBases::kInline) {
    bases.all = addresses.data();
  } else {
    std::copy(addresses.begin(), addresses.end(), bases.few);
  }
  return bases;
}

}  // namespace reshard::testing
