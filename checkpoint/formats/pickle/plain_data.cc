#include "checkpoint/formats/pickle/plain_data.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/formats/pickle/encoded_bytes.h"
#include "checkpoint/formats/pickle/numpy_data.h"
#include "checkpoint/formats/pickle/writer.h"

namespace reshard::pickle {
namespace {

using Kind = Pickle::Kind;
using Value = Pickle::Value;

// What is still to be written, the next at the end: a value, or the end of a container.
struct Partial {
  Value value = 0;
  bool hashable = false;  // it must be: a key of a dict, a member of a set, or a part of one
  void (PickleWriter::*end)() = nullptr;
};

class PlainWriter {
 public:
  static constexpr size_t kMostDigits = 255;  // bytes of an int

  PlainWriter(const Pickle& pickle, size_t most_bytes) : pickle_(pickle), most_bytes_(most_bytes) {}

  std::optional<std::string> Write(Value root) {
    partial_.push_back({root, false, nullptr});
    while (!partial_.empty()) {
      const Partial next = partial_.back();
      partial_.pop_back();
      if (next.end != nullptr) {
        (out_.*next.end)();
      } else if (!WriteOne(next)) {
        return std::nullopt;
      }
      // Every value takes a byte at least.
      if (static_cast<size_t>(out_.bytes()) + partial_.size() > most_bytes_) return std::nullopt;
    }
    return std::move(out_).Finish();
  }

 private:
  bool WriteOne(const Partial& one) {
    const Value v = one.value;
    switch (pickle_.kind(v)) {
      case Kind::kNone:
        out_.None();
        return true;
      case Kind::kBool:
        out_.Bool(pickle_.IsTrue(v));
        return true;
      case Kind::kInt:
        out_.Int(*pickle_.Int(v));
        return true;
      case Kind::kFloat:
        out_.Float(*pickle_.Float(v));
        return true;
      case Kind::kString:
      case Kind::kBytes:
        return WriteText(v);
      case Kind::kTuple:
        out_.BeginTuple();
        return Descend(v, one.hashable, one.hashable, &PickleWriter::EndTuple);
      case Kind::kList:
        if (one.hashable) return false;
        out_.BeginList();
        return Descend(v, false, false, &PickleWriter::EndList);
      case Kind::kSet:
        if (one.hashable) return false;
        out_.BeginSet();
        return Descend(v, true, true, &PickleWriter::EndSet);
      case Kind::kDict:
        if (one.hashable) return false;
        out_.BeginDict();
        return Descend(v, true, false, &PickleWriter::EndDict);
      case Kind::kObject:
        return WriteCall(v, one.hashable);
      case Kind::kBigInt:
        if (pickle_.Text(v).size() > kMostDigits) return false;
        out_.Long(pickle_.Text(v));
        return true;
      case Kind::kName:
      case Kind::kPersistent:
        break;
    }
    return false;
  }

  // What stands for plain data, in ways that pickles have for it.
  bool WriteCall(Value v, bool hashable) {
    if (pickle_.Contents(v)) return false;
    const Known known = pickle_.known(pickle_.Class(v));
    if (known == Known::kNamespace && !hashable && pickle_.HasItems(v)) {
      out_.BeginDict();
      return Descend(v, true, false, &PickleWriter::EndDict);
    }
    if (IsNumpyArray(pickle_, v) || IsNumpyScalar(pickle_, v)) return WriteNumpy(v, hashable);
    if (pickle_.HasItems(v) || pickle_.State(v)) return false;
    const absl::Span<const Value> given = pickle_.Tuple(pickle_.Arguments(v));
    if (known == Known::kSetOf && given.size() == 1 && !hashable &&
        (pickle_.kind(given[0]) == Kind::kList || pickle_.kind(given[0]) == Kind::kTuple)) {
      out_.BeginSet();
      return Descend(given[0], true, true, &PickleWriter::EndSet);
    }
    const std::optional<std::string> bytes = BytesOf(pickle_, v, most_bytes_);
    if (bytes) out_.Bytes(*bytes);
    return bytes.has_value();
  }

  bool WriteNumpy(Value v, bool hashable) {
    const std::optional<NumpyData> data = ReadNumpy(pickle_, v, most_bytes_);
    if (!data || data->is_fortran || (hashable && !data->shape.empty())) return false;
    return WriteElements(*data, 0, data->bytes);
  }

  // The elements of an index into the dimensions before `dim`, as lists.
  bool WriteElements(const NumpyData& data, size_t dim, std::string_view bytes) {
    if (dim == data.shape.size()) return WriteElement(data.dtype, bytes);
    out_.BeginList();
    const auto size = static_cast<size_t>(data.shape[dim]);
    if (size > most_bytes_) return false;
    for (size_t i = 0; i < size; ++i) {
      const size_t each = bytes.size() / size;
      if (!WriteElements(data, dim + 1, bytes.substr(i * each, each))) return false;
      if (static_cast<size_t>(out_.bytes()) > most_bytes_) return false;
    }
    out_.EndList();
    return true;
  }

  template <typename T>
  static T As(std::string_view bytes) {
    T number;
    std::memcpy(&number, bytes.data(), sizeof number);
    return number;
  }

  bool WriteElement(DType dtype, std::string_view bytes) {
    switch (dtype) {
      case DType::kF32:
        out_.Float(static_cast<double>(As<float>(bytes)));
        return true;
      case DType::kF64:
        out_.Float(As<double>(bytes));
        return true;
      case DType::kI8:
        out_.Int(As<int8_t>(bytes));
        return true;
      case DType::kI16:
        out_.Int(As<int16_t>(bytes));
        return true;
      case DType::kI32:
        out_.Int(As<int32_t>(bytes));
        return true;
      case DType::kI64:
        out_.Int(As<int64_t>(bytes));
        return true;
      case DType::kU8:
        out_.Int(As<uint8_t>(bytes));
        return true;
      case DType::kU16:
        out_.Int(As<uint16_t>(bytes));
        return true;
      case DType::kU32:
        out_.Int(As<uint32_t>(bytes));
        return true;
      case DType::kU64:
        if (bytes.back() < 0) {  // beyond 63 bits: a byte more says that it is not negative
          out_.Long(std::string(bytes) + '\0');
        } else {
          out_.Int(As<int64_t>(bytes));
        }
        return true;
      case DType::kBool:
        out_.Bool(bytes[0] != 0);
        return true;
      default:
        return false;
    }
  }

  bool WriteText(Value v) {
    const std::string_view text = pickle_.Text(v);
    if (text.size() > most_bytes_) return false;
    if (pickle_.kind(v) == Kind::kString) {
      out_.Text(text);
    } else {
      out_.Bytes(text);
    }
    return true;
  }

  // Its members come next, and then its end. Keys of a dict are its first of each two.
  bool Descend(Value v, bool hashable_first, bool hashable_second, void (PickleWriter::*end)()) {
    partial_.push_back({0, false, end});
    const size_t first = partial_.size();
    const auto add = [&](Value member, bool hashable) {
      partial_.push_back({member, hashable, nullptr});
      return partial_.size() <= most_bytes_;
    };
    const bool all =
        pickle_.HasItems(v)
            ? pickle_.ForEachItem(
                  v, [&](Value key, Value value) { return add(key, hashable_first) && add(value, hashable_second); })
            : pickle_.ForEach(v, [&](Value member) { return add(member, hashable_first); });
    std::reverse(partial_.begin() + static_cast<std::ptrdiff_t>(first), partial_.end());
    return all;
  }

  const Pickle& pickle_;
  const size_t most_bytes_;
  PickleWriter out_;
  std::vector<Partial> partial_;
};

}  // namespace

std::optional<std::string> PlainData(const Pickle& pickle, Value value, size_t most_bytes) {
  return PlainWriter(pickle, most_bytes).Write(value);
}

}  // namespace reshard::pickle
