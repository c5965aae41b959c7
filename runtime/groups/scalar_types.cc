#include "runtime/groups/scalar_types.h"

#include <array>
#include <optional>

#include "absl/strings/str_cat.h"

namespace reshard::groups {
namespace {

struct TypePair {
  at::ScalarType torch;
  DType ours;
};
constexpr TypePair kTypes[] = {
    {at::kBool, DType::kBool},
    {at::kChar, DType::kI8},
    {at::kShort, DType::kI16},
    {at::kInt, DType::kI32},
    {at::kLong, DType::kI64},
    {at::kByte, DType::kU8},
    {at::kUInt16, DType::kU16},
    {at::kUInt32, DType::kU32},
    {at::kUInt64, DType::kU64},
    {at::kHalf, DType::kF16},
    {at::kBFloat16, DType::kBF16},
    {at::kFloat, DType::kF32},
    {at::kDouble, DType::kF64},
    {at::kFloat8_e4m3fn, DType::kF8E4M3FN},
    {at::kFloat8_e5m2, DType::kF8E5M2},
    {at::kFloat8_e4m3fnuz, DType::kF8E4M3FNUZ},
    {at::kFloat8_e5m2fnuz, DType::kF8E5M2FNUZ},
    {at::kComplexFloat, DType::kC64},
    {at::kComplexDouble, DType::kC128},
    {at::kComplexHalf, DType::kC32},
    {at::kFloat8_e8m0fnu, DType::kF8E8M0},
    {at::kFloat4_e2m1fn_x2, DType::kF4E2M1x2},
};

}  // namespace

absl::StatusOr<DType> DTypeOf(at::ScalarType type) {
  // Asked for every tensor of every call.
  static const auto* const table = [] {
    auto* const filled = new std::array<std::optional<DType>, static_cast<size_t>(at::ScalarType::NumOptions)>;
    for (const TypePair& pair : kTypes) (*filled)[static_cast<size_t>(pair.torch)] = pair.ours;
    return filled;
  }();
  const std::optional<DType> found = (*table)[static_cast<size_t>(type)];
  if (found) return *found;
  return absl::UnimplementedError(absl::StrCat("tensors of type ", c10::toString(type)));
}

at::ScalarType ScalarTypeOf(DType type) {
  for (const TypePair& pair : kTypes) {
    if (pair.ours == type) return pair.torch;
  }
  return at::kByte;
}

}  // namespace reshard::groups
