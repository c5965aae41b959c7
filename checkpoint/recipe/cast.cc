#include "checkpoint/recipe/cast.h"

#include <cassert>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "runtime/host/reduce_formulas.h"
#include "status/view.h"

namespace reshard::recipe {
namespace {

using host::formulas::BFloat16;
using host::formulas::Bool;
using host::formulas::Float8;
using host::formulas::Half;
using host::formulas::Plain;

// visitor.template operator()<type>() for a real type. Complex ones are pairs of those.
template <typename Visitor>
void VisitReal(DType dtype, const Visitor& visitor) {
  switch (dtype) {
    case DType::kBool:
      return visitor.template operator()<Bool>();
    case DType::kI8:
      return visitor.template operator()<Plain<int8_t>>();
    case DType::kI16:
      return visitor.template operator()<Plain<int16_t>>();
    case DType::kI32:
      return visitor.template operator()<Plain<int32_t>>();
    case DType::kI64:
      return visitor.template operator()<Plain<int64_t>>();
    case DType::kU8:
      return visitor.template operator()<Plain<uint8_t>>();
    case DType::kU16:
      return visitor.template operator()<Plain<uint16_t>>();
    case DType::kU32:
      return visitor.template operator()<Plain<uint32_t>>();
    case DType::kU64:
      return visitor.template operator()<Plain<uint64_t>>();
    case DType::kF16:
      return visitor.template operator()<Half>();
    case DType::kBF16:
      return visitor.template operator()<BFloat16>();
    case DType::kF32:
      return visitor.template operator()<Plain<float>>();
    case DType::kF64:
      return visitor.template operator()<Plain<double>>();
    case DType::kF8E4M3FN:
      return visitor.template operator()<Float8<host::F8E4M3FN>>();
    case DType::kF8E5M2:
      return visitor.template operator()<Float8<host::F8E5M2>>();
    case DType::kF8E4M3FNUZ:
      return visitor.template operator()<Float8<host::F8E4M3FNUZ>>();
    case DType::kF8E5M2FNUZ:
      return visitor.template operator()<Float8<host::F8E5M2FNUZ>>();
    case DType::kC64:
    case DType::kC128:
    case DType::kC32:
    case DType::kF8E8M0:
    case DType::kF4E2M1x2:
      return;
  }
}

enum class Sort { kBool, kInteger, kFloat, kComplex, kOpaque };

Sort SortOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return Sort::kBool;
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64:
      return Sort::kInteger;
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32:
    case DType::kF64:
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
    case DType::kF8E4M3FNUZ:
    case DType::kF8E5M2FNUZ:
      return Sort::kFloat;
    case DType::kC32:
    case DType::kC64:
    case DType::kC128:
      return Sort::kComplex;
    case DType::kF8E8M0:
    case DType::kF4E2M1x2:
      return Sort::kOpaque;
  }
  return Sort::kOpaque;
}

// The type of the parts of a complex one.
DType PartOf(DType dtype) {
  if (dtype == DType::kC32) return DType::kF16;
  return dtype == DType::kC64 ? DType::kF32 : DType::kF64;
}

// Numbers of a type: signed ones of `bits` bits, or floats with such mantissas and exponents.
struct Range {
  bool is_float = false, has_sign = true, has_infinity = true, has_negative_zero = true;
  int bits = 0;                          // of integers, without the sign; of mantissas, with the hidden one
  int least_exponent = 0, exponent = 0;  // of the smallest subnormal and the largest number
};

Range RangeOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {true, true, true, true, 11, -24, 15};
    case DType::kBF16:
      return {true, true, true, true, 8, -133, 127};
    case DType::kF32:
      return {true, true, true, true, 24, -149, 127};
    case DType::kF64:
      return {true, true, true, true, 53, -1074, 1023};
    case DType::kF8E4M3FN:
      return {true, true, false, true, 4, -9, 8};
    case DType::kF8E5M2:
      return {true, true, true, true, 3, -16, 15};
    case DType::kF8E4M3FNUZ:
      return {true, true, false, false, 4, -10, 7};
    case DType::kF8E5M2FNUZ:
      return {true, true, false, false, 3, -17, 15};
    case DType::kBool:
      return {false, false, false, false, 1};
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64:
      return {false, false, false, false, static_cast<int>(8 * SizeOf(dtype))};
    default:
      return {false, true, false, false, static_cast<int>(8 * SizeOf(dtype)) - 1};
  }
}

}  // namespace

bool IsWideFloat(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

absl::Status CheckCast(DType from, DType to) {
  if (from == to) return absl::OkStatus();
  const Sort a = SortOf(from), b = SortOf(to);
  const bool opaque = a == Sort::kOpaque || b == Sort::kOpaque;
  const bool loses_part = a == Sort::kComplex && b != Sort::kComplex;
  const bool cuts = a == Sort::kFloat && b == Sort::kInteger;
  if (!opaque && !loses_part && !cuts) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(status::View(Name(from)), " elements cannot be cast to ", status::View(Name(to))));
}

bool IsExactCast(DType from, DType to) {
  if (from == to) return true;
  if (!CheckCast(from, to).ok()) return false;
  const Sort a = SortOf(from), b = SortOf(to);
  if (b == Sort::kComplex) return IsExactCast(a == Sort::kComplex ? PartOf(from) : from, PartOf(to));
  const Range x = RangeOf(from), y = RangeOf(to);
  if (x.bits > y.bits || (x.has_sign && !y.has_sign)) return false;
  if (!x.is_float) return !y.is_float || y.exponent >= x.bits;
  return x.least_exponent >= y.least_exponent && x.exponent <= y.exponent && (!x.has_infinity || y.has_infinity) &&
         (!x.has_negative_zero || y.has_negative_zero);
}

void Cast(DType from, DType to, const void* in, size_t count, void* out) {
  assert(CheckCast(from, to).ok());
  if (count == 0) return;  // then either pointer may be null
  if (from == to) {
    std::memcpy(out, in, count * static_cast<size_t>(SizeOf(to)));
    return;
  }
  if (SortOf(to) == Sort::kComplex) {
    const DType part = PartOf(to);
    if (SortOf(from) == Sort::kComplex) return Cast(PartOf(from), part, in, 2 * count, out);
    const auto size = static_cast<size_t>(SizeOf(part));
    const auto size_in = static_cast<size_t>(SizeOf(from));
    const double zero = 0;
    for (size_t i = 0; i < count; ++i) {
      char* const at = static_cast<char*>(out) + 2 * i * size;
      Cast(from, part, static_cast<const char*>(in) + i * size_in, 1, at);
      Cast(DType::kF64, part, &zero, 1, at + size);
    }
    return;
  }
  VisitReal(from, [&]<typename From>() {
    VisitReal(to, [&]<typename To>() {
      constexpr bool kToBool = std::is_same_v<To, Bool>;
      // What CheckCast refuses is not compiled: it has no meaning for most floats.
      constexpr bool kCuts = std::is_floating_point_v<typename From::Value> && std::is_integral_v<typename To::Value>;
      if constexpr (kToBool || !kCuts) {
        const auto* const a = static_cast<const typename From::Stored*>(in);
        auto* const b = static_cast<typename To::Stored*>(out);
        for (size_t i = 0; i < count; ++i) {
          const typename From::Value value = From::Load(a[i]);
          if constexpr (kToBool) {
            b[i] = value != 0;
          } else {
            b[i] = To::Store(static_cast<typename To::Value>(value));
          }
        }
      }
    });
  });
}

}  // namespace reshard::recipe
