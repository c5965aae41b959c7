#include "checkpoint/formats/dcp/tensor_frame.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/formats/pickle/writer.h"

namespace reshard::dcp {
namespace {

struct TypeNames {
  DType dtype;
  std::string_view name;
  std::string_view storage;  // the typed storage; empty: a type younger than those, which goes by its own name
};
constexpr TypeNames kTypes[] = {
    {DType::kBool, "bool", "BoolStorage"},
    {DType::kI8, "int8", "CharStorage"},
    {DType::kI16, "int16", "ShortStorage"},
    {DType::kI32, "int32", "IntStorage"},
    {DType::kI64, "int64", "LongStorage"},
    {DType::kU8, "uint8", "ByteStorage"},
    {DType::kU16, "uint16", ""},
    {DType::kU32, "uint32", ""},
    {DType::kU64, "uint64", ""},
    {DType::kF16, "float16", "HalfStorage"},
    {DType::kBF16, "bfloat16", "BFloat16Storage"},
    {DType::kF32, "float32", "FloatStorage"},
    {DType::kF64, "float64", "DoubleStorage"},
    {DType::kF8E4M3FN, "float8_e4m3fn", ""},
    {DType::kF8E5M2, "float8_e5m2", ""},
    {DType::kF8E4M3FNUZ, "float8_e4m3fnuz", ""},
    {DType::kF8E5M2FNUZ, "float8_e5m2fnuz", ""},
    {DType::kC64, "complex64", "ComplexFloatStorage"},
    {DType::kC128, "complex128", "ComplexDoubleStorage"},
    {DType::kC32, "complex32", ""},
    {DType::kF8E8M0, "float8_e8m0fnu", ""},
    {DType::kF4E2M1x2, "float4_e2m1fn_x2", ""},
};

const TypeNames& NamesOf(DType dtype) {
  return *std::find_if(std::begin(kTypes), std::end(kTypes), [dtype](const TypeNames& t) { return t.dtype == dtype; });
}

void WriteInts(absl::Span<const int64_t> values, pickle::PickleWriter* out) {
  out->BeginTuple();
  for (const int64_t value : values) out->Int(value);
  out->EndTuple();
}

}  // namespace

std::string_view TorchName(DType dtype) { return NamesOf(dtype).name; }

absl::StatusOr<zip::StoredArchive> TensorFrame(DType dtype, absl::Span<const int64_t> shape) {
  const TypeNames& names = NamesOf(dtype);
  std::vector<int64_t> strides(shape.size());
  int64_t elements = 1;
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(1, shape[d]);
    elements *= shape[d];
    if (stride > zip::StoredArchive::kLargest) break;
  }
  const int64_t bytes = elements * SizeOf(dtype);
  if (stride > zip::StoredArchive::kLargest || bytes > zip::StoredArchive::kLargest) {
    return absl::InvalidArgumentError(absl::StrCat("a box of more than ", zip::StoredArchive::kLargest, " bytes"));
  }

  const bool typed = !names.storage.empty();
  pickle::PickleWriter pickle;
  pickle.Global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  pickle.BeginTuple();
  pickle.BeginTuple();
  pickle.Text("storage");
  if (typed) {
    pickle.Global("torch", names.storage);
  } else {
    pickle.Global("torch.storage", "UntypedStorage");
  }
  pickle.Text("0");
  pickle.Text("cpu");
  pickle.Int(typed ? elements : bytes);
  pickle.EndTuple();
  pickle.PersistentId();
  pickle.Int(0);
  WriteInts(shape, &pickle);
  WriteInts(strides, &pickle);
  pickle.Bool(false);
  pickle.Global("collections", "OrderedDict");
  pickle.EmptyTuple();
  pickle.Reduce();
  if (!typed) pickle.Global("torch", names.name);
  pickle.EndTuple();
  pickle.Reduce();

  zip::StoredArchive archive("archive");
  archive.Add("data.pkl", std::move(pickle).Finish());
  archive.Add(".format_version", "1");
  archive.Add(".storage_alignment", absl::StrCat(zip::StoredArchive::kAlignment));
  archive.Add("byteorder", "little");
  archive.Add("version", "3\n");
  archive.AddLarge("data/0", bytes);
  return archive;
}

}  // namespace reshard::dcp
