#include "runtime/shared/slot_cuts.h"

#include <algorithm>

namespace reshard::shared {

int64_t SlotCuts::Next(int64_t capacity, std::vector<Cut>* cuts) {
  constexpr int64_t kLine = 64;
  constexpr int64_t kLargestElement = 16;
  constexpr int64_t kSmall = 512;
  cuts->clear();
  int64_t used = 0;
  while (next_ < lengths_.size()) {
    const int64_t bytes = lengths_[next_];
    const int64_t alignment = bytes < kSmall ? kLargestElement : kLine;
    const int64_t at = (used + alignment - 1) / alignment * alignment;
    const int64_t left = bytes - done_of_next_;
    int64_t length = std::min(left, capacity - at);
    if (length < left) length = length / kLine * kLine;
    if (length <= 0) break;
    cuts->push_back({next_, done_of_next_, done_of_next_ + length, at});
    used = at + length;
    if (length < left) {
      done_of_next_ += length;
      break;
    }
    ++next_;
    done_of_next_ = 0;
  }
  return used;
}

}  // namespace reshard::shared
