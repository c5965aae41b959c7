// f16 and bf16 as the bits of an uint16_t, to and from float. Conversions to the narrow type round to nearest even,
// overflow to infinity and keep NaNs.
#ifndef RESHARD_RUNTIME_CORE_HALF_H_
#define RESHARD_RUNTIME_CORE_HALF_H_

#include <bit>
#include <cstdint>

namespace reshard {

inline float BFloat16ToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7FFF + ((bits >> 16) & 1);
  // Rounding could turn a NaN into an infinity, so a NaN is cut off instead, with its quiet bit set.
  const uint32_t out = (bits & 0x7FFFFFFF) > 0x7F800000 ? bits | 0x00400000 : rounded;
  return static_cast<uint16_t>(out >> 16);
}

inline float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7FFF;
  // Exponent and mantissa moved into place are the value times 2^-112; the multiplication also makes subnormals right.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const uint32_t finite = std::bit_cast<uint32_t>(scaled);
  const uint32_t special = (magnitude << 13) | 0x7F800000;  // infinity or NaN
  return std::bit_cast<float>(sign | (magnitude >= 0x7C00 ? special : finite));
}

inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  uint32_t out = 0;
  if (magnitude >= 0x47800000) {  // 2^16 and above, infinity, NaN
    out = magnitude > 0x7F800000 ? 0x7E00 : 0x7C00;
  } else if (magnitude < 0x38800000) {
    // Below the smallest normal f16: adding 2^-1 lines the mantissa up, and the addition rounds.
    out = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000;
  } else {
    out = (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13;  // may carry into infinity, as it should
  }
  return static_cast<uint16_t>(out | (bits >> 16 & 0x8000));
}

}  // namespace reshard

#endif  // RESHARD_RUNTIME_CORE_HALF_H_
