#include "checkpoint/formats/pickle/numpy_data.h"

#include <string_view>
#include <utility>

#include "absl/types/span.h"
#include "checkpoint/formats/pickle/encoded_bytes.h"
#include "reshard/layout/checked.h"

namespace reshard::pickle {
namespace {

using Kind = Pickle::Kind;
using Value = Pickle::Value;

constexpr size_t kMostNumpyDimensions = 64;

struct NumpyType {
  std::string_view name;  // as NumPy writes it: a letter for the kind, then the bytes of an element
  DType dtype;
};
constexpr NumpyType kNumpyTypes[] = {
    {"f2", DType::kF16}, {"f4", DType::kF32},  {"f8", DType::kF64}, {"i1", DType::kI8},    {"i2", DType::kI16},
    {"i4", DType::kI32}, {"i8", DType::kI64},  {"u1", DType::kU8},  {"u2", DType::kU16},   {"u4", DType::kU32},
    {"u8", DType::kU64}, {"b1", DType::kBool}, {"c8", DType::kC64}, {"c16", DType::kC128},
};

class NumpyReader {
 public:
  NumpyReader(const Pickle& pickle, size_t most_bytes) : pickle_(pickle), most_bytes_(most_bytes) {}

  std::optional<NumpyData> Read(Value value) {
    const absl::Span<const Value> given = pickle_.Tuple(pickle_.Arguments(value));
    switch (pickle_.known(pickle_.Class(value))) {
      case Known::kNumpyScalar:  // (dtype, bytes)
        if (given.size() != 2) return std::nullopt;
        return Made(given[0], Pickle::kNoValue, given[1], false);
      case Known::kNumpyFromBuffer:  // (bytes, dtype, shape, order)
        if (given.size() != 4) return std::nullopt;
        return Made(given[1], given[2], given[0], pickle_.IsText(given[3], "F"));
      default: {  // the state: (version, shape, dtype, is Fortran, bytes)
        const std::optional<Value> state = pickle_.State(value);
        if (!state || pickle_.kind(*state) != Kind::kTuple || pickle_.Tuple(*state).size() != 5) return std::nullopt;
        const absl::Span<const Value> parts = pickle_.Tuple(*state);
        return Made(parts[2], parts[1], parts[4], pickle_.IsTrue(parts[3]));
      }
    }
  }

 private:
  std::optional<NumpyData> Made(Value dtype, Value shape, Value bytes, bool is_fortran) {
    NumpyData data;
    data.is_fortran = is_fortran;
    const std::optional<DType> known = DTypeOf(dtype);
    if (!known || (shape != Pickle::kNoValue && !ReadShape(shape, &data.shape))) return std::nullopt;
    data.dtype = *known;
    std::optional<int64_t> expected = SizeOf(data.dtype);
    for (const int64_t size : data.shape) expected = expected ? CheckedMul(*expected, size) : std::nullopt;
    std::optional<std::string> elements = BytesOf(pickle_, bytes, most_bytes_);
    if (!expected || !elements || *expected != static_cast<int64_t>(elements->size())) return std::nullopt;
    data.bytes = *std::move(elements);
    return data;
  }

  // dtype("f4", False, True), with a state of which the second is the byte order.
  std::optional<DType> DTypeOf(Value dtype) const {
    if (!pickle_.IsObjectOf(dtype, Known::kNumpyDType)) return std::nullopt;
    const absl::Span<const Value> given = pickle_.Tuple(pickle_.Arguments(dtype));
    if (given.empty() || pickle_.kind(given[0]) != Kind::kString) return std::nullopt;
    if (const std::optional<Value> state = pickle_.State(dtype)) {
      if (pickle_.kind(*state) != Kind::kTuple || pickle_.Tuple(*state).size() < 2) return std::nullopt;
      if (pickle_.IsText(pickle_.Tuple(*state)[1], ">")) return std::nullopt;
    }
    for (const NumpyType& row : kNumpyTypes) {
      if (pickle_.Text(given[0]) == row.name) return row.dtype;
    }
    return std::nullopt;
  }

  bool ReadShape(Value shape, std::vector<int64_t>* out) const {
    if (pickle_.kind(shape) != Kind::kTuple || pickle_.Tuple(shape).size() > kMostNumpyDimensions) return false;
    for (const Value one : pickle_.Tuple(shape)) {
      const std::optional<int64_t> size = pickle_.Int(one);
      if (!size || *size < 0) return false;
      out->push_back(*size);
    }
    return true;
  }

  const Pickle& pickle_;
  const size_t most_bytes_;
};

}  // namespace

bool IsNumpyArray(const Pickle& pickle, Value value) {
  return pickle.IsObjectOf(value, Known::kNumpyArray) || pickle.IsObjectOf(value, Known::kNumpyFromBuffer);
}

bool IsNumpyScalar(const Pickle& pickle, Value value) { return pickle.IsObjectOf(value, Known::kNumpyScalar); }

std::optional<NumpyData> ReadNumpy(const Pickle& pickle, Value value, size_t most_bytes) {
  if (!IsNumpyArray(pickle, value) && !IsNumpyScalar(pickle, value)) return std::nullopt;
  return NumpyReader(pickle, most_bytes).Read(value);
}

}  // namespace reshard::pickle
