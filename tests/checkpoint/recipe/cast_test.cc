// Casts have the values that they should have, and are exact where they say so.
#include "checkpoint/recipe/cast.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/catch.h"

namespace reshard::recipe {
namespace {

template <typename To, typename From>
std::vector<To> Casted(DType from, DType to, const std::vector<From>& values) {
  REQUIRE(CheckCast(from, to).ok());
  std::vector<To> out(values.size());
  Cast(from, to, values.data(), values.size(), out.data());
  return out;
}

constexpr DType kAll[] = {DType::kBool,       DType::kI8,         DType::kI16, DType::kI32,      DType::kI64,
                          DType::kU8,         DType::kU16,        DType::kU32, DType::kU64,      DType::kF16,
                          DType::kBF16,       DType::kF32,        DType::kF64, DType::kF8E4M3FN, DType::kF8E5M2,
                          DType::kF8E4M3FNUZ, DType::kF8E5M2FNUZ, DType::kC32, DType::kC64,      DType::kC128,
                          DType::kF8E8M0,     DType::kF4E2M1x2};

}  // namespace

TEST_CASE("numbers are cast to numbers") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(Casted<uint16_t, float>(DType::kF32, DType::kBF16, {1.0F, 1.00390625F, 1.01171875F, infinity, -2.0F}) ==
        std::vector<uint16_t>{0x3F80, 0x3F80, 0x3F82, 0x7F80, 0xC000});  // ties go to even
  CHECK(Casted<uint16_t, float>(DType::kF32, DType::kF16, {65504.0F, 65520.0F, 0x1p-24F, 0x1p-25F}) ==
        std::vector<uint16_t>{0x7BFF, 0x7C00, 0x0001, 0x0000});
  CHECK(Casted<uint8_t, float>(DType::kF32, DType::kF8E4M3FN, {448.0F, 1000.0F, -1.0F}) ==
        std::vector<uint8_t>{0x7E, 0x7F, 0xB8});
  CHECK(Casted<float, uint16_t>(DType::kBF16, DType::kF32, {0x3F80, 0xC000}) == std::vector<float>{1.0F, -2.0F});
  CHECK(Casted<int8_t, int32_t>(DType::kI32, DType::kI8, {-1, 128, 300}) == std::vector<int8_t>{-1, -128, 44});
  CHECK(Casted<uint64_t, int8_t>(DType::kI8, DType::kU64, {-1}) == std::vector<uint64_t>{~uint64_t{0}});
  CHECK(Casted<uint8_t, float>(DType::kF32, DType::kBool, {0.0F, -0.0F, 0.5F, NAN}) ==
        std::vector<uint8_t>{0, 0, 1, 1});
  CHECK(Casted<float, uint8_t>(DType::kBool, DType::kF32, {0, 1, 7}) == std::vector<float>{0, 1, 1});
  CHECK(Casted<float, int64_t>(DType::kI64, DType::kF32, {16777217, -3}) == std::vector<float>{16777216, -3});
  // By way of f32, as PyTorch does it: rounded twice.
  const double twice = 1.0 + 0x1p-8 + 0x1p-30;
  CHECK(Casted<uint16_t, double>(DType::kF64, DType::kBF16, {twice}) == std::vector<uint16_t>{0x3F80});
  double complex[2] = {9, 9};
  const float real = 2.5F;
  Cast(DType::kF32, DType::kC128, &real, 1, complex);
  CHECK((complex[0] == 2.5 && complex[1] == 0));
  CHECK(std::isnan(Casted<float, double>(DType::kF64, DType::kF32, {NAN})[0]));
}

TEST_CASE("what cannot be cast is refused with both types") {
  CHECK(std::string(CheckCast(DType::kF32, DType::kI64).message()) == "f32 elements cannot be cast to i64");
  CHECK_FALSE(CheckCast(DType::kC64, DType::kF32).ok());
  CHECK_FALSE(CheckCast(DType::kF8E8M0, DType::kF32).ok());
  CHECK_FALSE(CheckCast(DType::kF32, DType::kF4E2M1x2).ok());
  CHECK(CheckCast(DType::kF4E2M1x2, DType::kF4E2M1x2).ok());
  CHECK(CheckCast(DType::kF32, DType::kBool).ok());
}

TEST_CASE("a cast that is called exact brings every number back") {
  // All numbers of one and two bytes; NaNs are not compared.
  for (const DType from : kAll) {
    for (const DType to : kAll) {
      if (!CheckCast(from, to).ok() || SizeOf(from) > 2 || from == DType::kC32) continue;
      INFO(Name(from) << " to " << Name(to));
      if (!CheckCast(to, from).ok()) continue;
      const auto size = static_cast<size_t>(SizeOf(from));
      const size_t count = from == DType::kBool ? 2 : size_t{1} << (8 * size);
      std::string numbers(count * size, '\0'), cast(count * static_cast<size_t>(SizeOf(to)), '\0'), back = numbers;
      for (size_t i = 0; i < count; ++i) std::memcpy(numbers.data() + i * size, &i, size);
      Cast(from, to, numbers.data(), count, cast.data());
      Cast(to, from, cast.data(), count, back.data());
      std::vector<double> wanted(count);
      bool same = true;
      const bool has_value = CheckCast(from, DType::kF64).ok();
      if (has_value) Cast(from, DType::kF64, numbers.data(), count, wanted.data());
      for (size_t i = 0; i < count; ++i) {
        if (has_value && std::isnan(wanted[i])) continue;
        same &= std::memcmp(numbers.data() + i * size, back.data() + i * size, size) == 0;
      }
      CHECK((same || !IsExactCast(from, to)));
      // Floats into wider ones.
      if (has_value && SizeOf(to) > SizeOf(from) && (to == DType::kF32 || to == DType::kF64)) {
        CHECK(IsExactCast(from, to));
      }
    }
  }
  CHECK_FALSE(IsExactCast(DType::kF32, DType::kBF16));
  CHECK_FALSE(IsExactCast(DType::kI64, DType::kF64));
  CHECK(IsExactCast(DType::kI32, DType::kF64));
}

}  // namespace reshard::recipe
