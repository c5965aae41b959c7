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

}  // namespace reshard
