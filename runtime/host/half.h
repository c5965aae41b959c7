// Converts f16 and bf16, as the bits of a uint16_t, to and from float. Conversions to the narrow type round to nearest
// even, overflow to infinity and keep NaNs.
#ifndef RESHARD_RUNTIME_HOST_HALF_H_
#define RESHARD_RUNTIME_HOST_HALF_H_

#include <bit>
#include <cstdint>

namespace reshard::host {

constexpr float BFloat16ToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

constexpr uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7FFF + ((bits >> 16) & 1);
  // Rounding could turn a NaN into an infinity, so a NaN is cut off instead, with its quiet bit set.
  const uint32_t out = (bits & 0x7FFFFFFF) > 0x7F800000 ? bits | 0x00400000 : rounded;
  return static_cast<uint16_t>(out >> 16);
}

// Without a branch: all cases are computed and one is selected, so that the compiler can vectorize loops of
// conversions.
constexpr int32_t Select(bool condition, int32_t yes, int32_t no) {
  const int32_t mask = -static_cast<int32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

constexpr float HalfToFloat(uint16_t bits) {
  const int32_t sign = (bits & 0x8000) << 16;
  const int32_t magnitude = bits & 0x7FFF;
  // A subnormal is its mantissa times 2^-24. No intermediate is a subnormal float, which would be slow.
  const int32_t small = std::bit_cast<int32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  const int32_t normal = (magnitude << 13) + 0x38000000;
  const int32_t finite = Select(magnitude < 0x0400, small, normal);
  const int32_t special = (magnitude << 13) | 0x7F800000;  // infinity or NaN
  return std::bit_cast<float>(sign | Select(magnitude >= 0x7C00, special, finite));
}

constexpr uint16_t FloatToHalf(float value) {
  const int32_t bits = std::bit_cast<int32_t>(value);
  const int32_t magnitude = bits & 0x7FFFFFFF;
  // 2^16 and above, infinity, NaN.
  const int32_t special = Select(magnitude > 0x7F800000, 0x7E00, 0x7C00);
  // Below the smallest normal f16: adding 2^-1 lines the mantissa up, and the addition rounds.
  const int32_t small = std::bit_cast<int32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000;
  // May carry into infinity, as it should.
  const int32_t normal = (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
  const int32_t finite = Select(magnitude < 0x38800000, small, normal);
  return static_cast<uint16_t>(Select(magnitude >= 0x47800000, special, finite) | (bits >> 16 & 0x8000));
}

}  // namespace reshard::host

#endif  // RESHARD_RUNTIME_HOST_HALF_H_
