// Memory for very much data: its content is not set, and it lies in large pages where the system has them. With pages
// of 4 KiB more than a third of the time of reading a large checkpoint's metadata was the system's.
#ifndef RESHARD_CHECKPOINT_IO_LARGE_MEMORY_H_
#define RESHARD_CHECKPOINT_IO_LARGE_MEMORY_H_

#include <cstddef>
#include <string_view>
#include <utility>

namespace reshard {

class LargeMemory {
 public:
  LargeMemory() = default;
  // Throws bad_alloc. What is never touched takes no memory.
  explicit LargeMemory(size_t bytes);
  LargeMemory(LargeMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  LargeMemory& operator=(LargeMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~LargeMemory();

  char* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view text() const { return {data_, size_}; }

  // Makes it `bytes` large, more than before; what it contains stays. Throws bad_alloc.
  void Grow(size_t bytes);

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

// Asks for large pages under `bytes` bytes at `data` that were not touched yet. A wish: nothing depends on it.
void WishForLargePages(void* data, size_t bytes);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_IO_LARGE_MEMORY_H_
