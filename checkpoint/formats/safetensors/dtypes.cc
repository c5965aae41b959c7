#include "checkpoint/formats/safetensors/dtypes.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "reshard/layout/checked.h"

namespace reshard::safetensors {
namespace {

constexpr SafetensorsDType kDTypes[] = {
    {"U64", 64, DType::kU64},
    {"I64", 64, DType::kI64},
    {"F64", 64, DType::kF64},
    {"C64", 64, DType::kC64},
    {"F32", 32, DType::kF32},
    {"U32", 32, DType::kU32},
    {"I32", 32, DType::kI32},
    {"BF16", 16, DType::kBF16},
    {"F16", 16, DType::kF16},
    {"U16", 16, DType::kU16},
    {"I16", 16, DType::kI16},
    {"F8_E5M2FNUZ", 8, DType::kF8E5M2FNUZ},
    {"F8_E4M3FNUZ", 8, DType::kF8E4M3FNUZ},
    {"F8_E8M0", 8, DType::kF8E8M0},
    {"F8_E4M3", 8, DType::kF8E4M3FN},
    {"F8_E5M2", 8, DType::kF8E5M2},
    {"I8", 8, DType::kI8},
    {"U8", 8, DType::kU8},
    {"F6_E3M2", 6, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F4", 4, DType::kF4E2M1x2},
    {"BOOL", 8, DType::kBool},
};

}  // namespace

absl::Span<const SafetensorsDType> SafetensorsDTypes() { return kDTypes; }

const SafetensorsDType* FindSafetensorsDType(std::string_view name) {
  for (const SafetensorsDType& candidate : kDTypes) {
    if (candidate.name == name) return &candidate;
  }
  return nullptr;
}

const SafetensorsDType* FindSafetensorsDType(DType dtype) {
  for (const SafetensorsDType& candidate : kDTypes) {
    if (candidate.dtype == dtype) return &candidate;
  }
  return nullptr;
}

bool LooksLikeDType(std::string_view name) {
  constexpr size_t kLongest = 32;
  const auto fits = [](char c) { return absl::ascii_isupper(c) || absl::ascii_isdigit(c) || c == '_'; };
  return !name.empty() && name.size() <= kLongest && absl::ascii_isupper(name[0]) &&
         std::all_of(name.begin(), name.end(), fits);
}

std::optional<int64_t> BitsOf(absl::Span<const int64_t> shape, const SafetensorsDType& dtype) {
  std::optional<int64_t> bits = dtype.bits;
  bool empty = false;
  for (const int64_t size : shape) {
    empty |= size == 0;
    bits = CheckedMul(*bits, std::max<int64_t>(size, 1));
    if (!bits) return std::nullopt;
  }
  return empty ? 0 : bits;
}

}  // namespace reshard::safetensors
