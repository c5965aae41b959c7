#include "checkpoint/formats/torch_save/torch_dtype.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"

namespace reshard::torch_save {
namespace {

constexpr std::string_view kModule = "torch.";

struct TypeNames {
  DType dtype;
  std::string_view name;
  std::string_view storage;
};
constexpr TypeNames kTypes[] = {
    {DType::kF32, "float32", "FloatStorage"},
    {DType::kBF16, "bfloat16", "BFloat16Storage"},
    {DType::kF16, "float16", "HalfStorage"},
    {DType::kF64, "float64", "DoubleStorage"},
    {DType::kI64, "int64", "LongStorage"},
    {DType::kI32, "int32", "IntStorage"},
    {DType::kI16, "int16", "ShortStorage"},
    {DType::kI8, "int8", "CharStorage"},
    {DType::kU8, "uint8", "ByteStorage"},
    {DType::kU16, "uint16", ""},
    {DType::kU32, "uint32", ""},
    {DType::kU64, "uint64", ""},
    {DType::kBool, "bool", "BoolStorage"},
    {DType::kC64, "complex64", "ComplexFloatStorage"},
    {DType::kC128, "complex128", "ComplexDoubleStorage"},
    {DType::kF8E4M3FN, "float8_e4m3fn", ""},
    {DType::kF8E5M2, "float8_e5m2", ""},
    {DType::kF8E4M3FNUZ, "float8_e4m3fnuz", ""},
    {DType::kF8E5M2FNUZ, "float8_e5m2fnuz", ""},
    {DType::kC32, "complex32", ""},
    {DType::kF8E8M0, "float8_e8m0fnu", ""},
    {DType::kF4E2M1x2, "float4_e2m1fn_x2", ""},
};

template <typename Matches>
const TypeNames* FindType(const Matches& matches) {
  const auto* const found = std::find_if(std::begin(kTypes), std::end(kTypes), matches);
  return found == std::end(kTypes) ? nullptr : found;
}

}  // namespace

std::string_view TorchName(DType dtype) {
  return FindType([dtype](const TypeNames& type) { return type.dtype == dtype; })->name;
}

std::string_view StorageName(DType dtype) {
  return FindType([dtype](const TypeNames& type) { return type.dtype == dtype; })->storage;
}

std::optional<DType> DTypeOfTorch(std::string_view name) {
  if (!name.starts_with(kModule)) return std::nullopt;
  name.remove_prefix(kModule.size());
  const TypeNames* const found = FindType([name](const TypeNames& type) { return type.name == name; });
  return found == nullptr ? std::nullopt : std::optional<DType>(found->dtype);
}

std::optional<DType> DTypeOfStorage(std::string_view name) {
  if (name.empty()) return std::nullopt;
  const TypeNames* const found = FindType([name](const TypeNames& type) { return type.storage == name; });
  return found == nullptr ? std::nullopt : std::optional<DType>(found->dtype);
}

bool LooksLikeTorchDType(std::string_view name) {
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

}  // namespace reshard::torch_save
