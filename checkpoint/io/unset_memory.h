// Uninitialized memory for large amounts of data: pages that are never touched cost nothing.
//
// Huge pages are not requested. They save a tenth of the time of reading a large `.metadata` if the machine has them
// available, but double it in a virtual machine whose host reclaims free memory, where a huge page costs 5 ms.
#ifndef RESHARD_CHECKPOINT_IO_UNSET_MEMORY_H_
#define RESHARD_CHECKPOINT_IO_UNSET_MEMORY_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

namespace reshard::io {

class UnsetMemory {
 public:
  UnsetMemory() = default;
  // Throws bad_alloc.
  explicit UnsetMemory(size_t bytes) { Grow(bytes); }
  UnsetMemory(UnsetMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  UnsetMemory& operator=(UnsetMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~UnsetMemory() { std::free(data_); }

  char* data() const { return data_; }
  size_t size() const { return size_; }

  // Makes it `bytes` large, more than before. The contents stay, in place if the system can do that. Throws bad_alloc.
  void Grow(size_t bytes) {
    if (bytes == size_) return;
    void* const grown = std::realloc(data_, bytes);
    if (grown == nullptr) throw std::bad_alloc();
    data_ = static_cast<char*>(grown);
    size_ = bytes;
  }

  // Asks the system for the pages of bytes [begin, end) at once, where it can do that, before they are touched.
  void Ready(size_t begin, size_t end) const {
#ifdef MADV_POPULATE_WRITE
    constexpr uintptr_t kPage = 4096;
    const uintptr_t first = (reinterpret_cast<uintptr_t>(data_) + begin + kPage - 1) / kPage * kPage;
    const uintptr_t last = (reinterpret_cast<uintptr_t>(data_) + end) / kPage * kPage;
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_POPULATE_WRITE);
#else
    static_cast<void>(begin);
    static_cast<void>(end);
#endif
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace reshard::io

#endif  // RESHARD_CHECKPOINT_IO_UNSET_MEMORY_H_
