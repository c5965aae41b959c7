// Converts the four f8 types, as the bits of a uint8_t, to and from float. Conversions from float round to nearest
// even, never saturate, and agree with those of PyTorch.
#ifndef RESHARD_RUNTIME_HOST_FLOAT8_H_
#define RESHARD_RUNTIME_HOST_FLOAT8_H_

#include <bit>
#include <cstdint>

#include "runtime/host/half.h"

namespace reshard::host {

// Codes are given without the sign. kOverflow is the first code above the largest number: whatever rounds to it or
// beyond becomes it. Types without a negative zero have their only NaN in its place, and no infinities.
struct F8E4M3FN {
  static constexpr int kMantissaBits = 3;
  static constexpr int kBias = 7;
  static constexpr int32_t kOverflow = 0x7F;  // NaN; there is no infinity
  static constexpr int32_t kNaN = 0x7F;
  static constexpr bool kNegativeZero = true;
};
struct F8E5M2 {
  static constexpr int kMantissaBits = 2;
  static constexpr int kBias = 15;
  static constexpr int32_t kOverflow = 0x7C;  // infinity
  static constexpr int32_t kNaN = 0x7F;
  static constexpr bool kNegativeZero = true;
};
struct F8E4M3FNUZ {
  static constexpr int kMantissaBits = 3;
  static constexpr int kBias = 8;
  static constexpr int32_t kOverflow = 0x80;
  static constexpr int32_t kNaN = 0x80;
  static constexpr bool kNegativeZero = false;
};
struct F8E5M2FNUZ {
  static constexpr int kMantissaBits = 2;
  static constexpr int kBias = 16;
  static constexpr int32_t kOverflow = 0x80;
  static constexpr int32_t kNaN = 0x80;
  static constexpr bool kNegativeZero = false;
};

// How far the mantissa has to be shifted, and what has to be added to the exponent, to make a float of the type.
template <typename F8>
inline constexpr int kF8Shift = 23 - F8::kMantissaBits;
template <typename F8>
inline constexpr int32_t kF8Rebias = (127 - F8::kBias) << 23;
// The smallest normal number, as the bits of a float.
template <typename F8>
inline constexpr int32_t kF8Normal = (128 - F8::kBias) << 23;

template <typename F8>
constexpr float Float8ToFloat(uint8_t bits) {
  constexpr int kShift = kF8Shift<F8>;
  constexpr int32_t kRebias = kF8Rebias<F8>;
  constexpr float kSmallest = std::bit_cast<float>(kF8Normal<F8> - (F8::kMantissaBits << 23));
  const int32_t magnitude = bits & 0x7F;
  const int32_t small = std::bit_cast<int32_t>(static_cast<float>(magnitude) * kSmallest);
  const int32_t normal = (magnitude << kShift) + kRebias;
  const int32_t finite = Select(magnitude < 1 << F8::kMantissaBits, small, normal);
  const int32_t sign = (bits & 0x80) << 24;
  if constexpr (F8::kNegativeZero) {
    const int32_t special = (magnitude << kShift) | 0x7F800000;  // infinity or NaN
    return std::bit_cast<float>(sign | Select(magnitude >= F8::kOverflow, special, finite));
  } else {
    return std::bit_cast<float>(Select(bits == F8::kNaN, 0x7FC00000, sign | finite));
  }
}

template <typename F8>
constexpr uint8_t FloatToFloat8(float value) {
  constexpr int kShift = kF8Shift<F8>;
  // Its last bit is the smallest subnormal: adding it lines the mantissa up, and the addition rounds.
  constexpr int32_t kLineUp = kF8Normal<F8> + (kShift << 23);
  const int32_t bits = std::bit_cast<int32_t>(value);
  const int32_t magnitude = bits & 0x7FFFFFFF;
  const int32_t small =
      std::bit_cast<int32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kLineUp)) - kLineUp;
  // May carry into kOverflow, as it should.
  const int32_t normal = (magnitude - kF8Rebias<F8> + (1 << (kShift - 1)) - 1 + ((magnitude >> kShift) & 1)) >> kShift;
  const int32_t finite = Select(magnitude < kF8Normal<F8>, small, normal);
  const int32_t special = Select(magnitude > 0x7F800000, F8::kNaN, F8::kOverflow);
  const int32_t code = Select(magnitude >= (F8::kOverflow << kShift) + kF8Rebias<F8>, special, finite);
  const int32_t sign = bits >> 24 & 0x80;
  return static_cast<uint8_t>(code | Select(F8::kNegativeZero || code != 0, sign, 0));
}

}  // namespace reshard::host

#endif  // RESHARD_RUNTIME_HOST_FLOAT8_H_
