// The words that the values of a pickle are made of: one array that only grows, and grows where it lies when the system
// can do that.
#ifndef RESHARD_CHECKPOINT_PICKLE_HEAP_H_
#define RESHARD_CHECKPOINT_PICKLE_HEAP_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

namespace reshard {

class PickleHeap {
 public:
  PickleHeap() = default;
  PickleHeap(PickleHeap&& other) noexcept
      : words_(std::exchange(other.words_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  PickleHeap& operator=(PickleHeap&& other) noexcept {
    std::swap(words_, other.words_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~PickleHeap() { std::free(words_); }

  uint32_t& operator[](size_t i) { return words_[i]; }
  uint32_t operator[](size_t i) const { return words_[i]; }
  const uint32_t* data() const { return words_; }
  size_t size() const { return size_; }

  // The index of `count` more words, whose content is not set. Throws bad_alloc.
  uint32_t Take(size_t count) {
    if (count > capacity_ - size_) Grow(count);
    const size_t at = size_;
    size_ += count;
    return static_cast<uint32_t>(at);
  }

 private:
  void Grow(size_t count) {
    size_t capacity = capacity_ < 1024 ? 1024 : capacity_ * 2;
    if (capacity < size_ + count) capacity = size_ + count;
    void* const grown = std::realloc(words_, capacity * sizeof(uint32_t));
    if (grown == nullptr) throw std::bad_alloc();
    words_ = static_cast<uint32_t*>(grown);
    capacity_ = capacity;
    // More than a third of the time of a large pickle was the system's, with pages of 4 KiB. A wish: nothing depends on
    // it.
    constexpr uintptr_t kPage = 4096;
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(words_) + kPage - 1) / kPage * kPage;
    const uintptr_t end = reinterpret_cast<uintptr_t>(words_ + capacity_) / kPage * kPage;
    if (end > begin && end - begin >= kHuge) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  }

  static constexpr uintptr_t kHuge = uintptr_t{16} << 20;  // bytes from which on it matters

  uint32_t* words_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_PICKLE_HEAP_H_
