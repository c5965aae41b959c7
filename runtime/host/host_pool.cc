#include "runtime/host/host_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "status/mutex.h"

namespace reshard::host {
namespace {

constexpr int64_t kPooledFrom = int64_t{1} << 20;

// Blocks of one size class are interchangeable: eight classes per power of two.
int64_t ClassOf(int64_t bytes) {
  if (bytes < kPooledFrom) return AlignedHostBytes(std::max<int64_t>(bytes, 1));
  const auto grain = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes)) / 8);
  return (bytes + grain - 1) / grain * grain;
}

int64_t Limit() {
  int64_t limit = 0;
  const char* text = std::getenv("RESHARD_POOL_BYTES");
  if (text != nullptr && absl::SimpleAtoi(text, &limit) && limit >= 0) return limit;
  return int64_t{1} << 30;
}

// Memory in pages of 2 MiB, if the system has any: a first touch then makes one page, not 512, and copies past the
// caches find their pages without walking tables. Not for small blocks, which would be mostly the rest that is not a
// whole page.
void* FreshMemory(int64_t size) {
  constexpr int64_t kHugePage = int64_t{2} << 20;
  if (size < 2 * kHugePage) return std::aligned_alloc(kHostAlignment, static_cast<size_t>(size));
  void* block = nullptr;
  if (posix_memalign(&block, kHugePage, static_cast<size_t>(size)) != 0) return nullptr;
#if defined(MADV_HUGEPAGE)
  // Only advice: the memory is there without it, too.
  madvise(block, static_cast<size_t>(size / kHugePage * kHugePage), MADV_HUGEPAGE);
#endif
  return block;
}

struct Pool {
  status::Mutex mutex;
  absl::flat_hash_map<int64_t, std::vector<void*>> blocks ABSL_GUARDED_BY(mutex);
  int64_t kept ABSL_GUARDED_BY(mutex) = 0;
  const int64_t limit = Limit();
};

// Never destroyed: tensors may outlive every static.
Pool& ThePool() {
  static Pool* const pool = new Pool;
  return *pool;
}

}  // namespace

void* AcquireHostBlock(int64_t bytes) {
  const int64_t size = ClassOf(bytes);
  if (size >= kPooledFrom) {
    Pool& pool = ThePool();
    const status::MutexLock lock(pool.mutex);
    const auto found = pool.blocks.find(size);
    if (found != pool.blocks.end() && !found->second.empty()) {
      void* block = found->second.back();
      found->second.pop_back();
      pool.kept -= size;
      return block;
    }
  }
  return FreshMemory(size);
}

void ReleaseHostBlock(void* block, int64_t bytes) {
  if (block == nullptr) return;
  const int64_t size = ClassOf(bytes);
  if (size >= kPooledFrom) {
    Pool& pool = ThePool();
    const status::MutexLock lock(pool.mutex);
    if (pool.kept + size <= pool.limit) {
      pool.blocks[size].push_back(block);
      pool.kept += size;
      return;
    }
  }
  std::free(block);
}

int64_t PooledHostBytes() {
  Pool& pool = ThePool();
  const status::MutexLock lock(pool.mutex);
  return pool.kept;
}

}  // namespace reshard::host
