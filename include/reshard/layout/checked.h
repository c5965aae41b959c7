// Checked 64-bit arithmetic. Every size, offset and byte count in the library goes through it, so that no input can
// make one wrap around.
#ifndef RESHARD_LAYOUT_CHECKED_H_
#define RESHARD_LAYOUT_CHECKED_H_

#include <cassert>
#include <cstdint>
#include <optional>

namespace reshard {

// a + b, or nullopt if the sum does not fit in an int64.
inline std::optional<int64_t> CheckedAdd(int64_t a, int64_t b) {
  int64_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

// a * b, or nullopt if the product does not fit in an int64.
inline std::optional<int64_t> CheckedMul(int64_t a, int64_t b) {
  int64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

// a / b rounded up: the smallest q with q * b >= a. Requires a >= 0 and b > 0; never overflows.
inline int64_t CeilDiv(int64_t a, int64_t b) {
  assert(a >= 0 && b > 0);
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace reshard

#endif  // RESHARD_LAYOUT_CHECKED_H_
