#include "tests/checkpoint/convert/sha256.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace reshard::testing {
namespace {

// The first 32 bits of the fraction of a root of a prime, which is how FIPS 180-4 defines its constants.
uint32_t Fraction(long double root) { return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L); }

struct Constants {
  uint32_t round[64];
  uint32_t start[8];
  Constants() {
    int found = 0;
    for (int n = 2; found < 64; ++n) {
      bool prime = true;
      for (int d = 2; d * d <= n; ++d) prime &= n % d != 0;
      if (!prime) continue;
      round[found] = Fraction(std::cbrt(static_cast<long double>(n)));
      if (found < 8) start[found] = Fraction(std::sqrt(static_cast<long double>(n)));
      ++found;
    }
  }
};

}  // namespace

std::string Sha256(std::string_view data) {
  static const Constants constants;
  std::string padded(data);
  padded += static_cast<char>(0x80);
  while (padded.size() % 64 != 56) padded += '\0';
  for (int shift = 56; shift >= 0; shift -= 8) padded += static_cast<char>(uint64_t{data.size()} * 8 >> shift);

  uint32_t hash[8];
  std::copy(constants.start, constants.start + 8, hash);
  for (size_t block = 0; block < padded.size(); block += 64) {
    uint32_t w[64];
    for (size_t i = 0; i < 16; ++i) {
      w[i] = 0;
      for (size_t b = 0; b < 4; ++b) w[i] = w[i] << 8 | static_cast<uint8_t>(padded[block + 4 * i + b]);
    }
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
      const uint32_t b = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    uint32_t v[8];
    std::copy(hash, hash + 8, v);
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t e = std::rotr(v[4], 6) ^ std::rotr(v[4], 11) ^ std::rotr(v[4], 25);
      const uint32_t first = v[7] + e + ((v[4] & v[5]) ^ (~v[4] & v[6])) + constants.round[i] + w[i];
      const uint32_t a = std::rotr(v[0], 2) ^ std::rotr(v[0], 13) ^ std::rotr(v[0], 22);
      const uint32_t second = a + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
      for (size_t j = 7; j > 0; --j) v[j] = v[j - 1];
      v[4] += first;
      v[0] = first + second;
    }
    for (size_t j = 0; j < 8; ++j) hash[j] += v[j];
  }
  std::string text;
  for (const uint32_t word : hash) {
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", word);
    text += digits;
  }
  return text;
}

}  // namespace reshard::testing
