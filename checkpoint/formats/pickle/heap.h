// The words that the values of a pickle consist of: one array that only grows, in place if the system supports that.
#ifndef RESHARD_CHECKPOINT_FORMATS_PICKLE_HEAP_H_
#define RESHARD_CHECKPOINT_FORMATS_PICKLE_HEAP_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "checkpoint/io/unset_memory.h"

namespace reshard::pickle {

class PickleHeap {
 public:
  PickleHeap() = default;
  // With room for `expected` words; what is not used of it takes no memory. Throws bad_alloc.
  explicit PickleHeap(size_t expected)
      : memory_(expected * sizeof(uint32_t)),
        words_(reinterpret_cast<uint32_t*>(memory_.data())),
        capacity_(expected) {}
  PickleHeap(PickleHeap&& other) noexcept { *this = std::move(other); }
  PickleHeap& operator=(PickleHeap&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(words_, other.words_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    std::swap(ready_, other.ready_);
    return *this;
  }

  uint32_t& operator[](size_t i) { return words_[i]; }
  uint32_t operator[](size_t i) const { return words_[i]; }
  const uint32_t* data() const { return words_; }
  size_t size() const { return size_; }

  // Where the next Take of up to `count` words will be; they may be written before it. Throws bad_alloc.
  uint32_t* Ahead(size_t count) {
    if (count > ready_ - size_) MakeReady(count);
    return words_ + size_;
  }
  // The index of `count` more words, whose content is not set. Throws bad_alloc.
  uint32_t Take(size_t count) {
    if (count > ready_ - size_) MakeReady(count);
    const size_t at = size_;
    size_ += count;
    return static_cast<uint32_t>(at);
  }

 private:
  // A page that is asked for together with others costs a third of what it costs alone.
  static constexpr size_t kReadied = (size_t{1} << 20) / sizeof(uint32_t);

  void MakeReady(size_t count) {
    if (count > capacity_ - size_) {
      capacity_ = std::max({capacity_ * 2, size_ + count, size_t{1024}});
      memory_.Grow(capacity_ * sizeof(uint32_t));
      words_ = reinterpret_cast<uint32_t*>(memory_.data());
    }
    ready_ = std::min(capacity_, std::max(ready_, size_) + std::max(count, kReadied));
    memory_.Ready(size_ * sizeof(uint32_t), ready_ * sizeof(uint32_t));
  }

  io::UnsetMemory memory_;
  uint32_t* words_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
  size_t ready_ = 0;  // words that were asked of the system
};

}  // namespace reshard::pickle

#endif  // RESHARD_CHECKPOINT_FORMATS_PICKLE_HEAP_H_
