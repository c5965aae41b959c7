#include "reshard/layout/dtype.h"

namespace reshard {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int64_t size;
};

// In the order of the enum, so that a dtype is its own index.
constexpr Row kRows[] = {
    {DType::kBool, "bool", 1},
    {DType::kI8, "i8", 1},
    {DType::kI16, "i16", 2},
    {DType::kI32, "i32", 4},
    {DType::kI64, "i64", 8},
    {DType::kU8, "u8", 1},
    {DType::kU16, "u16", 2},
    {DType::kU32, "u32", 4},
    {DType::kU64, "u64", 8},
    {DType::kF16, "f16", 2},
    {DType::kBF16, "bf16", 2},
    {DType::kF32, "f32", 4},
    {DType::kF64, "f64", 8},
    {DType::kF8E4M3FN, "f8e4m3fn", 1},
    {DType::kF8E5M2, "f8e5m2", 1},
    {DType::kF8E4M3FNUZ, "f8e4m3fnuz", 1},
    {DType::kF8E5M2FNUZ, "f8e5m2fnuz", 1},
    {DType::kC64, "c64", 8},
    {DType::kC128, "c128", 16},
    {DType::kC32, "c32", 4},
    {DType::kF8E8M0, "f8e8m0", 1},
    {DType::kF4E2M1x2, "f4e2m1x2", 1},
};

constexpr bool InEnumOrder() {
  int expected = 0;
  for (const Row& row : kRows) {
    if (static_cast<int>(row.dtype) != expected++) return false;
  }
  return expected == static_cast<int>(DType::kF4E2M1x2) + 1;
}
static_assert(InEnumOrder());

struct Alias {
  std::string_view name;  // in lower case
  DType dtype;
};

// PyTorch's, NumPy's and safetensors' names where they are not the names here.
constexpr Alias kAliases[] = {
    {"float32", DType::kF32},
    {"float", DType::kF32},
    {"fp32", DType::kF32},
    {"bfloat16", DType::kBF16},
    {"float16", DType::kF16},
    {"half", DType::kF16},
    {"fp16", DType::kF16},
    {"float64", DType::kF64},
    {"double", DType::kF64},
    {"fp64", DType::kF64},
    {"int8", DType::kI8},
    {"int16", DType::kI16},
    {"short", DType::kI16},
    {"int32", DType::kI32},
    {"int", DType::kI32},
    {"int64", DType::kI64},
    {"long", DType::kI64},
    {"uint8", DType::kU8},
    {"byte", DType::kU8},
    {"uint16", DType::kU16},
    {"uint32", DType::kU32},
    {"uint64", DType::kU64},
    {"fp8", DType::kF8E4M3FN},
    {"float8", DType::kF8E4M3FN},
    {"float8_e4m3fn", DType::kF8E4M3FN},
    {"f8_e4m3", DType::kF8E4M3FN},
    {"f8_e4m3fn", DType::kF8E4M3FN},
    {"fp8_e4m3", DType::kF8E4M3FN},
    {"float8_e5m2", DType::kF8E5M2},
    {"f8_e5m2", DType::kF8E5M2},
    {"fp8_e5m2", DType::kF8E5M2},
    {"float8_e4m3fnuz", DType::kF8E4M3FNUZ},
    {"f8_e4m3fnuz", DType::kF8E4M3FNUZ},
    {"float8_e5m2fnuz", DType::kF8E5M2FNUZ},
    {"f8_e5m2fnuz", DType::kF8E5M2FNUZ},
    {"float8_e8m0fnu", DType::kF8E8M0},
    {"f8_e8m0", DType::kF8E8M0},
    {"float4_e2m1fn_x2", DType::kF4E2M1x2},
    {"complex32", DType::kC32},
    {"chalf", DType::kC32},
    {"complex64", DType::kC64},
    {"cfloat", DType::kC64},
    {"complex128", DType::kC128},
    {"cdouble", DType::kC128},
};

}  // namespace

int64_t SizeOf(DType dtype) { return kRows[static_cast<int>(dtype)].size; }

bool IsComputable(DType dtype) { return dtype < DType::kC32; }

std::string_view Name(DType dtype) { return kRows[static_cast<int>(dtype)].name; }

std::optional<DType> ParseDType(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::optional<DType> FindDType(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  std::string_view plain = lower;
  for (const std::string_view module : {"torch.", "numpy.", "np.", "jnp."}) {
    if (plain.starts_with(module)) plain.remove_prefix(module.size());
  }
  if (const std::optional<DType> dtype = ParseDType(plain)) return dtype;
  for (const Alias& alias : kAliases) {
    if (alias.name == plain) return alias.dtype;
  }
  return std::nullopt;
}

std::string KnownDTypes() {
  std::string names;
  for (const Row& row : kRows) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

}  // namespace reshard
