#include "checkpoint/io/large_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>

namespace reshard {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kLargePage = size_t{2} << 20;
constexpr size_t kLarge = size_t{16} << 20;  // from which on it matters

}  // namespace

LargeMemory::LargeMemory(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const size_t rounded = (bytes + kLargePage - 1) / kLargePage * kLargePage;
  void* const data = bytes < kLarge ? std::malloc(bytes) : std::aligned_alloc(kLargePage, rounded);
  if (data == nullptr) throw std::bad_alloc();
  data_ = static_cast<char*>(data);
  WishForLargePages(data_, size_);
}

LargeMemory::~LargeMemory() { std::free(data_); }

void LargeMemory::Grow(size_t bytes) {
  void* const grown = std::realloc(data_, bytes);  // moves pages where it can, not bytes
  if (grown == nullptr) throw std::bad_alloc();
  data_ = static_cast<char*>(grown);
  size_ = bytes;
  WishForLargePages(data_, size_);
}

void WishForLargePages(void* data, size_t bytes) {
  if (bytes < kLarge) return;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) / kPage * kPage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / kPage * kPage;
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace reshard
