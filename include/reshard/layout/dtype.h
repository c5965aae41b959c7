// Element types. A redistribution moves bytes, so most of the library needs only their size; reductions need the type.
#ifndef RESHARD_LAYOUT_DTYPE_H_
#define RESHARD_LAYOUT_DTYPE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace reshard {

// k<kind><bits>: I signed integers, U unsigned integers, F IEEE floating point, BF bfloat16, C complex. The 8-bit
// floats are named after their exponent and mantissa bits; FN has no infinities, UZ no negative zero. The types from
// kC32 on are moved, saved and loaded, but not computed with: reductions refuse them by name.
enum class DType {
  kBool,  // one byte, 0 or 1
  kI8,    // two's complement
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kF16,   // IEEE binary16
  kBF16,  // bfloat16: the upper half of an f32
  kF32,
  kF64,
  kF8E4M3FN,    // torch.float8_e4m3fn; largest value 448
  kF8E5M2,      // torch.float8_e5m2; with infinities
  kF8E4M3FNUZ,  // torch.float8_e4m3fnuz; largest value 240
  kF8E5M2FNUZ,  // torch.float8_e5m2fnuz; no infinities
  kC64,         // complex of two f32
  kC128,        // complex of two f64
  kC32,         // torch.complex32: complex of two f16
  kF8E8M0,      // torch.float8_e8m0fnu: powers of two, the scales of MX formats
  kF4E2M1x2,    // torch.float4_e2m1fn_x2: two 4-bit floats in a byte, which count as one element
};

// Size of one element in bytes: 1, 2, 4, 8 or 16.
int64_t SizeOf(DType dtype);

// Whether reductions can compute with the type.
bool IsComputable(DType dtype);

// The name used in text, in JSON and on the command line: "bool", "i8", ..., "bf16", "f8e4m3fn", "c128".
// Post-condition: ParseDType(Name(t)) == t for every t.
std::string_view Name(DType dtype);

// The dtype with that name, or nullopt if there is none. Names are case-sensitive.
std::optional<DType> ParseDType(std::string_view name);

// The dtype with this name, ignoring case: its name here, its PyTorch or NumPy name ("float32", "torch.bfloat16",
// "half", "long"), or its safetensors name ("BF16", "F8_E4M3"). "fp8" is f8e4m3fn. Nullopt if there is none. For what
// people type: files use only the names here.
std::optional<DType> FindDType(std::string_view name);

// All names, for messages: "bool, i8, ..., f4e2m1x2".
std::string KnownDTypes();

}  // namespace reshard

#endif  // RESHARD_LAYOUT_DTYPE_H_
