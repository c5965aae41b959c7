#include "checkpoint/formats/torch_save/tensor_record.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "checkpoint/formats/torch_save/storage_id.h"
#include "checkpoint/formats/torch_save/torch_dtype.h"
#include "checkpoint/io/show.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::torch_save {
namespace {

using Value = pickle::Pickle::Value;
using Kind = pickle::Pickle::Kind;

// How a tensor is rebuilt.
struct Call {
  size_t needed = 0;            // of the arguments; one more may be flags
  std::optional<size_t> dtype;  // which of them is the dtype, where it is not that of the storage
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
    // What the elements of any other class mean is unknown.
    const bool is_torchs =
        right && ((pickle.Module(given[1]) == "torch" && pickle.Name(given[1]) == "Tensor") ||
                  pickle.Module(given[1]) == "torch._tensor" || pickle.Module(given[1]) == "torch.nn.parameter");
    if (!is_torchs) return std::nullopt;
    function = pickle.known(given[0]);
    arguments = given[2];
  }
  const absl::Span<const Value> given = pickle.Tuple(arguments);
  switch (function) {
    case Known::kRebuildTensor:
      return Call{4, std::nullopt, given};
    case Known::kRebuildTensorV2:
      return Call{6, std::nullopt, given};
    case Known::kRebuildTensorV3:
      return Call{7, 6, given};
    default:
      return std::nullopt;
  }
}

class RecordReader {
 public:
  explicit RecordReader(const Archive& archive) : archive_(archive), pickle_(archive.description()) {}

  // Arguments of _rebuild_tensor: storage, offset, size, strides; of _rebuild_tensor_v2 also: requires_grad, hooks
  // [, flags]; of _rebuild_tensor_v3: requires_grad, hooks, dtype [, flags].
  absl::StatusOr<TensorRecord> Read(Value tensor, const Expected* expected) {
    const auto [needed, dtype, given] = *FindCall(pickle_, tensor);
    if (given.size() < needed || given.size() > needed + 1) {
      return archive_.Bad("a tensor of ", given.size(), " arguments");
    }
    const std::optional<StorageId> id = ReadStorageId(pickle_, given[0]);
    if (!id) return archive_.Bad("a tensor without a storage");
    RETURN_IF_ERROR(FindDType(*id, dtype ? std::optional(given[*dtype]) : std::nullopt));
    std::optional<int64_t> offset = pickle_.Int(given[1]);
    if (offset) offset = CheckedAdd(*offset, id->first);
    catalog::StoredElements& elements = record_.elements;
    if (!Ints(given[2], &elements.shape) || !Ints(given[3], &elements.strides) || !offset) {
      return archive_.Bad("no offset, shape and strides");
    }
    if (expected != nullptr) {
      RETURN_IF_ERROR(Compare(*expected));
    }
    record_.requires_grad = needed > 4 && pickle_.IsTrue(given[4]);
    if (given.size() > needed) {
      RETURN_IF_ERROR(ReadFlags(given[needed]));
    }
    RETURN_IF_ERROR(FindStorage(*id));
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

  absl::Status FindDType(const StorageId& id, const std::optional<Value>& dtype) {
    if (dtype) {
      if (!id.is_untyped || pickle_.kind(*dtype) != Kind::kName) return archive_.Bad("a storage without a dtype");
      record_.stored_dtype =
          absl::StrCat(status::View(pickle_.Module(*dtype)), ".", status::View(pickle_.Name(*dtype)));
      record_.dtype = DTypeOfTorch(record_.stored_dtype);
    } else {
      record_.dtype = id.dtype;
      record_.stored_dtype = record_.dtype ? absl::StrCat("torch.", status::View(TorchName(*record_.dtype)))
                                           : absl::StrCat(status::View(id.module), ".", status::View(id.type));
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
    if (pickle_.kind(flags) != Kind::kDict) return archive_.Bad("flags that are not a dict");
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

  absl::Status FindStorage(const StorageId& id) {
    ASSIGN_OR_RETURN(const std::optional<Storage> found, archive_.FindStorage(id.key));
    if (!found) return archive_.Bad("no record of the elements, data/", io::Shown(id.key));
    if (id.element_bytes) {
      const std::optional<int64_t> bytes = CheckedMul(id.elements, *id.element_bytes);
      if (!bytes || *bytes != found->length) {
        return archive_.Bad("a storage of ", id.elements, id.is_untyped ? " bytes" : " elements", " in a record of ",
                            found->length, " bytes");
      }
    }
    record_.elements.record_at = found->at;
    record_.elements.record_length = found->length;
    record_.elements.record_crc32 = found->crc32;
    return absl::OkStatus();
  }

  // Sets where the first element is, after checking that the last one is in the record, too.
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
};

}  // namespace

bool IsTensor(const pickle::Pickle& description, Value value) { return FindCall(description, value).has_value(); }

bool IsAnyTensor(const pickle::Pickle& description, Value value) {
  return IsTensor(description, value) || description.IsObjectOf(value, pickle::Known::kRebuildParameter) ||
         description.IsObjectOf(value, pickle::Known::kRebuildFromType) ||
         description.IsObjectOf(value, pickle::Known::kRebuildWrapper) ||
         description.IsObjectOf(value, pickle::Known::kRebuildOther);
}

std::string KindOfTensor(const pickle::Pickle& description, Value value) {
  const Value function = description.Class(value);
  if (description.known(function) == pickle::Known::kRebuildFromType) {
    const absl::Span<const Value> given = description.Tuple(description.Arguments(value));
    if (given.size() > 1 && description.kind(given[1]) == Kind::kName) {
      constexpr size_t kLongest = 100;
      return absl::StrCat("a tensor of the class ", status::View(description.Module(given[1]).substr(0, kLongest)), ".",
                          status::View(description.Name(given[1]).substr(0, kLongest)));
    }
    return "a tensor of a class of its own";
  }
  const std::string_view name = description.Name(function);
  if (name.find("sparse") != std::string_view::npos) return "a sparse tensor";
  if (name.find("qtensor") != std::string_view::npos) return "a quantized tensor";
  if (name.find("nested") != std::string_view::npos) return "a nested tensor";
  if (name.find("meta") != std::string_view::npos) return "a tensor on the meta device, without elements";
  return "a tensor of another kind";
}

absl::StatusOr<TensorRecord> ReadTensorRecord(const Archive& archive, Value tensor, const Expected* expected) {
  return RecordReader(archive).Read(tensor, expected);
}

}  // namespace reshard::torch_save
