#include "checkpoint/formats/torch_save/tensor_record.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "checkpoint/formats/torch_save/torch_dtype.h"
#include "checkpoint/io/show.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::torch_save {
namespace {

using Value = pickle::Pickle::Value;
using Kind = pickle::Pickle::Kind;

// How a tensor is rebuilt: by which of the two functions, with which arguments.
struct Call {
  bool v3 = false;
  absl::Span<const Value> arguments;
};

std::optional<Call> FindCall(const pickle::Pickle& pickle, Value value) {
  using pickle::Known;
  if (pickle.kind(value) != Kind::kObject || pickle.kind(pickle.Class(value)) != Kind::kName) return std::nullopt;
  Known function = pickle.known(pickle.Class(value));
  Value arguments = pickle.Arguments(value);
  if (function == Known::kRebuildFromType) {  // (function, class, its arguments, state)
    const absl::Span<const Value> given = pickle.Tuple(arguments);
    const bool right = given.size() == 4 && pickle.kind(given[0]) == Kind::kName &&
                       pickle.kind(given[1]) == Kind::kName && pickle.kind(given[2]) == Kind::kTuple;
    // Of another class nobody knows what the elements mean.
    const bool is_torchs =
        right && ((pickle.Module(given[1]) == "torch" && pickle.Name(given[1]) == "Tensor") ||
                  pickle.Module(given[1]) == "torch._tensor" || pickle.Module(given[1]) == "torch.nn.parameter");
    if (!is_torchs) return std::nullopt;
    function = pickle.known(given[0]);
    arguments = given[2];
  }
  if (function != Known::kRebuildTensorV2 && function != Known::kRebuildTensorV3) return std::nullopt;
  return Call{function == Known::kRebuildTensorV3, pickle.Tuple(arguments)};
}

class RecordReader {
 public:
  explicit RecordReader(const Archive& archive) : archive_(archive), pickle_(archive.description()) {}

  // Arguments of _rebuild_tensor_v2: storage, offset, size, strides, requires_grad, hooks [, flags];
  // of _rebuild_tensor_v3: storage, offset, size, strides, requires_grad, hooks, dtype [, flags].
  absl::StatusOr<TensorRecord> Read(Value tensor, const Expected* expected) {
    const auto [v3, given] = *FindCall(pickle_, tensor);
    const size_t needed = v3 ? 7 : 6;
    if (given.size() < needed || given.size() > needed + 1) {
      return archive_.Bad("a tensor of ", given.size(), " arguments");
    }
    RETURN_IF_ERROR(FindDType(v3, given));
    const std::optional<int64_t> offset = pickle_.Int(given[1]);
    catalog::StoredElements& elements = record_.elements;
    if (!Ints(given[2], &elements.shape) || !Ints(given[3], &elements.strides) || !offset) {
      return archive_.Bad("no offset, shape and strides");
    }
    if (expected != nullptr) {
      RETURN_IF_ERROR(Compare(*expected));
    }
    record_.requires_grad = pickle_.IsTrue(given[4]);
    if (given.size() > needed) {
      RETURN_IF_ERROR(ReadFlags(given[needed]));
    }
    RETURN_IF_ERROR(FindStorage(given[0]));
    if (record_.dtype) {
      RETURN_IF_ERROR(Place(*offset));
    }
    return std::move(record_);
  }

 private:
  bool Ints(Value v, std::vector<int64_t>* out) const {
    // No framework has more dimensions, and what many tensors share must not be long.
    constexpr size_t kMostDimensions = 64;
    if (pickle_.kind(v) != Kind::kTuple || pickle_.Tuple(v).size() > kMostDimensions) return false;
    for (const Value one : pickle_.Tuple(v)) {
      const std::optional<int64_t> number = pickle_.Int(one);
      if (!number) return false;
      out->push_back(*number);
    }
    return true;
  }

  // The persistent id of a storage: ("storage", its class, key, device, number of elements).
  absl::Span<const Value> Storage(Value v) const {
    if (pickle_.kind(v) != Kind::kPersistent || pickle_.kind(pickle_.Arguments(v)) != Kind::kTuple) return {};
    const absl::Span<const Value> id = pickle_.Tuple(pickle_.Arguments(v));
    const bool right = id.size() >= 5 && pickle_.IsText(id[0], "storage") && pickle_.kind(id[1]) == Kind::kName &&
                       pickle_.kind(id[2]) == Kind::kString && pickle_.Int(id[4]).has_value();
    return right ? id : absl::Span<const Value>();
  }

  std::string FullName(Value name) const {
    return absl::StrCat(status::View(pickle_.Module(name)), ".", status::View(pickle_.Name(name)));
  }

  absl::Status FindDType(bool v3, absl::Span<const Value> given) {
    const absl::Span<const Value> id = Storage(given[0]);
    if (id.empty()) return archive_.Bad("a tensor without a storage");
    untyped_ = pickle_.Name(id[1]) == "UntypedStorage" && pickle_.Module(id[1]) == "torch.storage";
    if (v3) {
      if (!untyped_ || pickle_.kind(given[6]) != Kind::kName) return archive_.Bad("a storage without a dtype");
      record_.stored_dtype = FullName(given[6]);
      record_.dtype = DTypeOfTorch(record_.stored_dtype);
    } else {
      if (pickle_.Module(id[1]) == "torch") record_.dtype = DTypeOfStorage(pickle_.Name(id[1]));
      record_.stored_dtype =
          record_.dtype ? absl::StrCat("torch.", status::View(TorchName(*record_.dtype))) : FullName(id[1]);
    }
    if (record_.dtype) record_.elements.dtype = *record_.dtype;
    return absl::OkStatus();
  }

  absl::Status Compare(const Expected& expected) const {
    if (!record_.dtype) return archive_.CannotRead("elements of ", io::Shown(record_.stored_dtype));
    if (*record_.dtype != expected.dtype) {
      return archive_.Bad("elements of ", io::Shown(record_.stored_dtype), " where the metadata says ",
                          status::View(Name(expected.dtype)));
    }
    if (record_.elements.shape == expected.shape) return absl::OkStatus();
    return archive_.Bad("a tensor of shape ", io::Shown(record_.elements.shape), ", not ", io::Shown(expected.shape));
  }

  absl::Status ReadFlags(Value flags) {
    if (pickle_.kind(flags) == Kind::kNone) return absl::OkStatus();
    if (pickle_.kind(flags) != Kind::kDict) return archive_.Bad("flags that are no dict");
    const std::optional<DType> dtype = record_.dtype;
    const bool is_complex = dtype == DType::kC32 || dtype == DType::kC64 || dtype == DType::kC128;
    const bool is_float = dtype == DType::kF32 || dtype == DType::kF64;
    absl::Status status;
    pickle_.ForEachItem(flags, [&](Value key, Value value) {
      if (!pickle_.IsTrue(value) && pickle_.kind(value) == Kind::kBool) return true;
      if (pickle_.IsText(key, "conj") && is_complex) {
        record_.elements.conjugated = true;
      } else if (pickle_.IsText(key, "neg") && (is_complex || is_float)) {
        record_.elements.negated = true;
      } else {
        status =
            archive_.CannotRead("a tensor with the flag ",
                                pickle_.kind(key) == Kind::kString ? io::Shown(pickle_.Text(key)) : std::string("?"));
      }
      return status.ok();
    });
    return status;
  }

  absl::Status FindStorage(Value storage) {
    const absl::Span<const Value> id = Storage(storage);
    const std::string_view key = pickle_.Text(id[2]);
    const zip::ZipArchive::Record* const found = archive_.FindStorage(key);
    if (found == nullptr) return archive_.Bad("no record of the elements, data/", io::Shown(key));
    const int64_t count = *pickle_.Int(id[4]);
    if (untyped_ || record_.dtype) {
      const std::optional<int64_t> bytes = CheckedMul(count, untyped_ ? 1 : SizeOf(*record_.dtype));
      if (!bytes || *bytes != found->length) {
        return archive_.Bad("a storage of ", count, untyped_ ? " bytes" : " elements", " in a record of ",
                            found->length, " bytes");
      }
    }
    catalog::StoredElements& elements = record_.elements;
    ASSIGN_OR_RETURN(elements.record_at, archive_.records().PayloadAt(*found));
    elements.record_length = found->length;
    if (archive_.records().has_checksums()) elements.record_crc32 = found->crc32;
    return absl::OkStatus();
  }

  // Where the first element is, after it is sure that the last one is in the record too.
  absl::Status Place(int64_t offset) {
    catalog::StoredElements& e = record_.elements;
    std::optional<int64_t> last = offset;
    std::optional<int64_t> dense = SizeOf(e.dtype);  // bytes; strides of 0 make this more than the storage has
    bool inside = offset >= 0 && e.strides.size() == e.shape.size();
    bool empty = false;
    for (size_t d = 0; inside && d < e.shape.size(); ++d) {
      inside = e.strides[d] >= 0 && e.shape[d] >= 0;
      empty |= e.shape[d] == 0;
      const std::optional<int64_t> step = CheckedMul(std::max<int64_t>(e.shape[d] - 1, 0), e.strides[d]);
      last = last && step ? CheckedAdd(*last, *step) : std::nullopt;
      dense = dense && inside ? CheckedMul(*dense, std::max<int64_t>(e.shape[d], 1)) : std::nullopt;
    }
    const int64_t elements = e.record_length / SizeOf(e.dtype);
    if (!inside || !last || !dense || (!empty && *last >= elements) || (empty && offset > elements)) {
      return archive_.Bad("elements of shape ", io::Shown(e.shape), " and strides ", io::Shown(e.strides), " from ",
                          offset, " on leave a storage of ", elements);
    }
    // Nothing is multiplied by these, and any number may stand there.
    for (size_t d = 0; d < e.shape.size(); ++d) {
      if (empty || e.shape[d] == 1) e.strides[d] = 0;
    }
    e.first_at = e.record_at + offset * SizeOf(e.dtype);
    return absl::OkStatus();
  }

  const Archive& archive_;
  const pickle::Pickle& pickle_;
  TensorRecord record_;
  bool untyped_ = false;
};

}  // namespace

bool IsTensor(const pickle::Pickle& description, Value value) { return FindCall(description, value).has_value(); }

absl::StatusOr<TensorRecord> ReadTensorRecord(const Archive& archive, Value tensor, const Expected* expected) {
  return RecordReader(archive).Read(tensor, expected);
}

}  // namespace reshard::torch_save
