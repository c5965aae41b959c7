// f8 types against tables of their values, which are made from the definition of each format.
#include "runtime/host/float8.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "runtime/host/reduce.h"
#include "tests/catch.h"

namespace reshard {
namespace {

struct Format {
  DType dtype;
  float (*to_float)(uint8_t);
  uint8_t (*from_float)(float);
  int mantissa_bits;
  int bias;
  int largest;  // code of the largest finite number
  bool infinity;
  bool negative_zero;  // else 0x80 is the NaN
};

const Format kFormats[] = {
    {DType::kF8E4M3FN, host::Float8ToFloat<host::F8E4M3FN>, host::FloatToFloat8<host::F8E4M3FN>, 3, 7, 0x7E, false,
     true},
    {DType::kF8E5M2, host::Float8ToFloat<host::F8E5M2>, host::FloatToFloat8<host::F8E5M2>, 2, 15, 0x7B, true, true},
    {DType::kF8E4M3FNUZ, host::Float8ToFloat<host::F8E4M3FNUZ>, host::FloatToFloat8<host::F8E4M3FNUZ>, 3, 8, 0x7F,
     false, false},
    {DType::kF8E5M2FNUZ, host::Float8ToFloat<host::F8E5M2FNUZ>, host::FloatToFloat8<host::F8E5M2FNUZ>, 2, 16, 0x7F,
     false, false},
};

// The number of a code without sign, as if its exponents went on.
double Value(const Format& f, int code) {
  const int exponent = code >> f.mantissa_bits;
  const int mantissa = code & ((1 << f.mantissa_bits) - 1);
  const int one = exponent == 0 ? 0 : 1 << f.mantissa_bits;
  return std::ldexp(one + mantissa, std::max(exponent, 1) - f.bias - f.mantissa_bits);
}

// The nearest code by trying all, the even one of two; one beyond the largest stands for all that is too large.
uint8_t Nearest(const Format& f, float value) {
  const int sign = std::signbit(value) ? 0x80 : 0;
  const int nan = f.negative_zero ? 0x7F | sign : 0x80;
  if (std::isnan(value)) return static_cast<uint8_t>(nan);
  const int too_large = f.infinity ? (f.largest + 1) | sign : nan;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude >= Value(f, f.largest + 1)) return static_cast<uint8_t>(too_large);
  int best = 0;
  for (int code = 1; code <= f.largest + 1; ++code) {
    const double here = std::fabs(Value(f, code) - magnitude);
    const double there = std::fabs(Value(f, best) - magnitude);
    if (here < there || (here == there && code % 2 == 0)) best = code;
  }
  if (best > f.largest) return static_cast<uint8_t>(too_large);
  if (best == 0 && !f.negative_zero) return 0;
  return static_cast<uint8_t>(best | sign);
}

TEST_CASE("every f8 code is the number that its format defines, and comes back") {
  for (const Format& f : kFormats) {
    for (int code = 0; code < 256; ++code) {
      CAPTURE(std::string(Name(f.dtype)), code);
      const auto bits = static_cast<uint8_t>(code);
      const int magnitude = code & 0x7F;
      const float value = f.to_float(bits);
      if (!f.negative_zero && code == 0x80) {
        REQUIRE(std::isnan(value));
      } else if (magnitude <= f.largest) {
        REQUIRE(value == (code & 0x80 ? -Value(f, magnitude) : Value(f, magnitude)));
        REQUIRE(std::signbit(value) == (code >= 0x80));
      } else if (f.infinity && magnitude == f.largest + 1) {
        REQUIRE(value == (code & 0x80 ? -1 : 1) * std::numeric_limits<float>::infinity());
      } else {
        REQUIRE(std::isnan(value));
        // All NaNs of a sign become one.
        REQUIRE(f.from_float(value) == (0x7F | (code & 0x80)));
        continue;
      }
      REQUIRE(f.from_float(value) == bits);
    }
  }
}

TEST_CASE("floats become the nearest f8, the even one of two") {
  std::mt19937 random(static_cast<uint32_t>(testing::Seed()));
  for (const Format& f : kFormats) {
    CAPTURE(std::string(Name(f.dtype)));
    std::vector<float> values = {0.0f,
                                 std::numeric_limits<float>::denorm_min(),
                                 std::numeric_limits<float>::min(),
                                 std::numeric_limits<float>::max(),
                                 std::numeric_limits<float>::infinity(),
                                 std::numeric_limits<float>::quiet_NaN()};
    for (int code = 0; code <= f.largest + 1; ++code) {
      // Each number, the middle between it and the next one, and what lies beside both.
      for (double v : {Value(f, code), (Value(f, code) + Value(f, code + 1)) / 2}) {
        const auto at = static_cast<float>(v);
        REQUIRE(static_cast<double>(at) == v);
        values.insert(values.end(), {std::nextafter(at, 0.0f), at, std::nextafter(at, 1e30f)});
      }
    }
    for (int i = 0; i < 20000; ++i) {
      values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));  // any exponent
      values.push_back(std::ldexp(static_cast<float>(random() % 65536), static_cast<int>(random() % 40) - 35));
    }
    for (float value : values) {
      CAPTURE(value);
      REQUIRE(static_cast<int>(f.from_float(value)) == static_cast<int>(Nearest(f, value)));
      REQUIRE(static_cast<int>(f.from_float(-value)) == static_cast<int>(Nearest(f, -value)));
    }
  }
}

// Where the formats differ, spelled out.
TEST_CASE("what an f8 type cannot hold becomes its NaN or its infinity") {
  CHECK(host::FloatToFloat8<host::F8E4M3FN>(464.0f) == 0x7E);  // half way to 480, to even
  CHECK(host::FloatToFloat8<host::F8E4M3FN>(465.0f) == 0x7F);
  CHECK(host::FloatToFloat8<host::F8E4M3FN>(-1e30f) == 0xFF);
  CHECK(host::FloatToFloat8<host::F8E4M3FN>(-std::numeric_limits<float>::infinity()) == 0xFF);
  CHECK(host::FloatToFloat8<host::F8E5M2>(61439.0f) == 0x7B);
  CHECK(host::FloatToFloat8<host::F8E5M2>(61440.0f) == 0x7C);  // half way to 65536, to even
  CHECK(host::FloatToFloat8<host::F8E5M2>(-1e30f) == 0xFC);
  CHECK(host::FloatToFloat8<host::F8E5M2>(std::numeric_limits<float>::quiet_NaN()) == 0x7F);
  CHECK(host::FloatToFloat8<host::F8E4M3FNUZ>(247.0f) == 0x7F);
  CHECK(host::FloatToFloat8<host::F8E4M3FNUZ>(248.0f) == 0x80);
  CHECK(host::FloatToFloat8<host::F8E4M3FNUZ>(-1e30f) == 0x80);
  CHECK(host::FloatToFloat8<host::F8E4M3FNUZ>(-0.0f) == 0);
  CHECK(host::FloatToFloat8<host::F8E4M3FNUZ>(-1e-9f) == 0);
  CHECK(host::FloatToFloat8<host::F8E5M2FNUZ>(61439.0f) == 0x7F);
  CHECK(host::FloatToFloat8<host::F8E5M2FNUZ>(61440.0f) == 0x80);
}

TEST_CASE("f8 values are combined in f32, in order, and rounded once") {
  std::mt19937_64 random(testing::Seed());
  for (const Format& f : kFormats) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd}) {
      for (size_t ranks : {1u, 2u, 3u, 8u}) {
        CAPTURE(std::string(Name(f.dtype)), Name(op), ranks);
        REQUIRE(host::CheckReduction(op, f.dtype).ok());
        constexpr size_t kElements = 5000;  // more than a block
        const Dims strides = {1};
        std::vector<std::vector<uint8_t>> in(ranks, std::vector<uint8_t>(kElements));
        std::vector<host::Contribution> contributions;
        for (auto& values : in) {
          for (uint8_t& v : values) v = static_cast<uint8_t>(random());  // NaNs and infinities too
          contributions.push_back({values.data(), strides});
        }
        std::vector<uint8_t> out(kElements);
        host::ReduceBox(op, f.dtype, {kElements}, contributions, out.data(), strides);
        for (size_t i = 0; i < kElements; ++i) {
          float result = f.to_float(in[0][i]);
          bool nan = std::isnan(result);
          for (size_t k = 1; k < ranks; ++k) {
            const float x = f.to_float(in[k][i]);
            nan |= std::isnan(x);
            if (op == ReduceOp::kMin) {
              result = std::min(result, x);
            } else if (op == ReduceOp::kMax) {
              result = std::max(result, x);
            } else {
              result = op == ReduceOp::kProd ? result * x : result + x;
            }
          }
          if (op == ReduceOp::kAvg) result /= static_cast<float>(ranks);
          if (nan) result = std::numeric_limits<float>::quiet_NaN();  // std::min and std::max may drop it
          // As numbers: of -0 and 0 either is the largest.
          const float expected = f.to_float(Nearest(f, result));
          REQUIRE((f.to_float(out[i]) == expected || (std::isnan(expected) && std::isnan(f.to_float(out[i])))));
        }
      }
    }
  }
}

}  // namespace
}  // namespace reshard
