// Element types. A redistribution moves bytes, so most of the library only needs the size; reductions need the type.
#ifndef RESHARD_LAYOUT_DTYPE_H_
#define RESHARD_LAYOUT_DTYPE_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace reshard {

enum class DType {
  kBool,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kF8E4M3FN,
  kF8E5M2,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kC64,   // complex of two f32
  kC128,  // complex of two f64
};

// Size of one element in bytes: 1, 2, 4, 8 or 16.
int64_t SizeOf(DType dtype);

// The name used in text, JSON and on the command line: "bool", "i8", ..., "bf16", "f8e4m3fn", "c128".
// Post-condition: ParseDType(Name(t)) == t for every t.
std::string_view Name(DType dtype);

// The dtype of that name, or nothing. Names are matched exactly.
std::optional<DType> ParseDType(std::string_view name);

}  // namespace reshard

#endif  // RESHARD_LAYOUT_DTYPE_H_
