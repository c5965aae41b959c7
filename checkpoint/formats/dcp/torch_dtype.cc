#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "checkpoint/formats/dcp/read_metadata.h"

namespace reshard::dcp {
namespace {

struct Row {
  std::string_view name;
  DType dtype;
};

constexpr Row kRows[] = {
    {"torch.float32", DType::kF32},
    {"torch.bfloat16", DType::kBF16},
    {"torch.float16", DType::kF16},
    {"torch.float64", DType::kF64},
    {"torch.int64", DType::kI64},
    {"torch.int32", DType::kI32},
    {"torch.int16", DType::kI16},
    {"torch.int8", DType::kI8},
    {"torch.uint8", DType::kU8},
    {"torch.uint16", DType::kU16},
    {"torch.uint32", DType::kU32},
    {"torch.uint64", DType::kU64},
    {"torch.bool", DType::kBool},
    {"torch.complex64", DType::kC64},
    {"torch.complex128", DType::kC128},
    {"torch.float8_e4m3fn", DType::kF8E4M3FN},
    {"torch.float8_e5m2", DType::kF8E5M2},
    {"torch.float8_e4m3fnuz", DType::kF8E4M3FNUZ},
    {"torch.float8_e5m2fnuz", DType::kF8E5M2FNUZ},
    {"torch.complex32", DType::kC32},
    {"torch.float8_e8m0fnu", DType::kF8E8M0},
    {"torch.float4_e2m1fn_x2", DType::kF4E2M1x2},
};

}  // namespace

std::optional<DType> DTypeOfTorch(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

bool LooksLikeTorchDType(std::string_view name) {
  constexpr std::string_view kModule = "torch.";
  constexpr std::string_view kKinds[] = {"float", "bfloat", "complex", "int", "uint", "bool", "qint", "quint", "bits"};
  if (!name.starts_with(kModule)) return false;
  name.remove_prefix(kModule.size());
  const auto fits = [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_'; };
  return std::all_of(name.begin(), name.end(), fits) &&
         std::any_of(std::begin(kKinds), std::end(kKinds), [&](std::string_view kind) {
           // A letter behind the kind makes it a word of its own.
           return name.starts_with(kind) && (name.size() == kind.size() || !absl::ascii_islower(name[kind.size()]));
         });
}

}  // namespace reshard::dcp
