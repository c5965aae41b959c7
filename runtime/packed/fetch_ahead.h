// Copies of many pieces. Small ones are scattered: their memory is prefetched while the pieces before them are copied.
// For large ones the processor's own prefetching is enough.
#ifndef RESHARD_RUNTIME_PACKED_FETCH_AHEAD_H_
#define RESHARD_RUNTIME_PACKED_FETCH_AHEAD_H_

#include <cstddef>
#include <cstdint>

#include "reshard/runtime/strided_copy.h"

namespace reshard::packed {

inline bool IsSmall(const StridedCopy& copy) { return copy.bytes() <= int64_t{16} << 10; }

// Prefetches the side of a small copy that begins at `side`; `written` says whether it is written or read.
inline void FetchSmall(const StridedCopy& copy, const void* side, bool written) {
  if (IsSmall(copy)) copy.FetchAhead(side, written);
}

// Calls copy(k) for 0 <= k < count in turn, and fetch(k) a few pieces before that.
template <typename Fetch, typename Copy>
void CopyFetchingAhead(size_t count, const Fetch& fetch, const Copy& copy) {
  constexpr size_t kAhead = 3;
  for (size_t k = 0; k < kAhead && k < count; ++k) fetch(k);
  for (size_t k = 0; k < count; ++k) {
    if (k + kAhead < count) fetch(k + kAhead);
    copy(k);
  }
}

}  // namespace reshard::packed

#endif  // RESHARD_RUNTIME_PACKED_FETCH_AHEAD_H_
