// Chooses whether slots are packed with cached or with non-temporal (streaming) stores.
//
// Which is faster is not known beforehand. Between two cores that share a cache, the lines that one has just written
// cost the other next to nothing; between cores that do not, they cost many times as much as reading from memory. And
// the cores of a virtual machine may share a cache now and not a moment later. So both modes are measured continuously,
// from packing to unpacking.
#ifndef RESHARD_RUNTIME_SHARED_PACK_MODE_H_
#define RESHARD_RUNTIME_SHARED_PACK_MODE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "reshard/runtime/strided_copy.h"

namespace reshard::shared {

// The choice for one receiver.
class PackMode {
 public:
  // The mode for the next slot: the one that was faster recently, and now and then the other.
  CopyMode Next() {
    ++asked_;
    // More often at the beginning, when little is known.
    const bool probe = asked_ < kProbeEvery ? (asked_ & (asked_ - 1)) == 0 : asked_ % kProbeEvery == 0;
    const bool cached = Best(kCached) <= Best(kStreamed);
    return cached != probe ? CopyMode::kCached : CopyMode::kStreaming;
  }
  // Records what a slot packed in this mode took, over all ranks together.
  void Measured(CopyMode mode, double nanoseconds_per_byte) {
    Recent& recent = recent_[mode == CopyMode::kCached ? kCached : kStreamed];
    recent.costs[recent.next++ % kRemembered] = nanoseconds_per_byte;
  }

 private:
  static constexpr size_t kCached = 0;
  static constexpr size_t kStreamed = 1;
  static constexpr uint64_t kProbeEvery = 64;
  static constexpr size_t kRemembered = 4;

  struct Recent {
    // Before anything is known: streaming, which is never far from the best.
    explicit Recent(double cost) { costs.fill(cost); }
    std::array<double, kRemembered> costs;
    size_t next = 0;
  };

  // The lowest remembered cost: measurements during which a rank was descheduled do not count.
  double Best(size_t mode) const {
    const auto& costs = recent_[mode].costs;
    return *std::min_element(costs.begin(), costs.end());
  }

  Recent recent_[2] = {Recent(1.0), Recent(0.9)};
  uint64_t asked_ = 0;
};

}  // namespace reshard::shared

#endif  // RESHARD_RUNTIME_SHARED_PACK_MODE_H_
