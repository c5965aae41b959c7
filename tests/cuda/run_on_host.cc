#include "tests/cuda/run_on_host.h"

#include <algorithm>
#include <memory>

#include "runtime/cuda/copy_code.h"
#include "runtime/cuda/reduce_code.h"

namespace reshard::testing {

void RunCopyOnHost(const CopyEntry* entries, const uint32_t* first_chunk, uint32_t entry_count,
                   const KernelBases& bases) {
  struct alignas(16) Shared {
    char bytes[kTileBytes];
  };
  for (uint32_t chunk = 0; chunk < first_chunk[entry_count]; ++chunk) {
    const uint32_t entry = EntryOfChunk(first_chunk, entry_count, chunk);
    const auto shared = std::make_unique<Shared>();  // on its own, so that a sanitizer sees its end
    for (uint32_t thread = 0; thread < kBlockThreads; ++thread) {
      CopyFirstPhase(entries, first_chunk, entry, bases, chunk, thread, shared->bytes);
    }
    for (uint32_t thread = 0; thread < kBlockThreads; ++thread) {
      CopySecondPhase(entries, first_chunk, entry, bases, chunk, thread, shared->bytes);
    }
  }
}

void RunReduceOnHost(const ReduceEntry* entries, const uint32_t* first_chunk, uint32_t entry_count,
                     const KernelBases& bases) {
  for (uint32_t chunk = 0; chunk < first_chunk[entry_count]; ++chunk) {
    const uint32_t entry = EntryOfChunk(first_chunk, entry_count, chunk);
    for (uint32_t thread = 0; thread < kBlockThreads; ++thread) {
      ReduceChunk(entries[entry], bases, chunk - first_chunk[entry], thread);
    }
  }
}

KernelBases BasesOf(const std::vector<uint64_t>& addresses) {
  KernelBases bases{};
  if (addresses.size() > KernelBases::kInline) {
    bases.all = addresses.data();
  } else {
    std::copy(addresses.begin(), addresses.end(), bases.few);
  }
  return bases;
}

}  // namespace reshard::testing
