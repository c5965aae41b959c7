#include "checkpoint/formats/dcp/tensor_stream.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/formats/dcp/read_metadata.h"
#include "checkpoint/formats/pickle/machine.h"
#include "checkpoint/formats/zip/reader.h"
#include "checkpoint/io/show.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::dcp {
namespace {

using Value = pickle::Pickle::Value;
using Kind = pickle::Pickle::Kind;

constexpr int64_t kMostDescription = int64_t{1} << 20;  // bytes; PyTorch writes some hundreds
constexpr int64_t kMostByteOrder = 16;

struct TypedStorage {
  std::string_view name;
  DType dtype;
};
constexpr TypedStorage kStorages[] = {
    {"FloatStorage", DType::kF32},  {"BFloat16Storage", DType::kBF16},    {"HalfStorage", DType::kF16},
    {"DoubleStorage", DType::kF64}, {"LongStorage", DType::kI64},         {"IntStorage", DType::kI32},
    {"ShortStorage", DType::kI16},  {"CharStorage", DType::kI8},          {"ByteStorage", DType::kU8},
    {"BoolStorage", DType::kBool},  {"ComplexFloatStorage", DType::kC64}, {"ComplexDoubleStorage", DType::kC128},
};

std::optional<DType> DTypeOfStorage(const pickle::Pickle& pickle, Value name) {
  if (pickle.Module(name) != "torch") return std::nullopt;
  for (const TypedStorage& storage : kStorages) {
    if (pickle.Name(name) == storage.name) return storage.dtype;
  }
  return std::nullopt;
}

class StreamReader {
 public:
  StreamReader(const io::ReadFile& file, const Catalog::Place& place, DType dtype, absl::Span<const int64_t> shape)
      : file_(file), place_(place), dtype_(dtype), shape_(shape) {}

  absl::StatusOr<TensorStream> Find() {
    ASSIGN_OR_RETURN(const zip::ZipArchive archive, zip::ZipArchive::Open(file_, place_.at, place_.length));
    const zip::ZipArchive::Record* description = nullptr;
    constexpr std::string_view kDescription = "/data.pkl";
    for (const zip::ZipArchive::Record& record : archive.records()) {
      const std::string_view name = record.name;
      if (name.size() <= kDescription.size() || name.find('/') != name.size() - kDescription.size() ||
          name.substr(name.size() - kDescription.size()) != kDescription) {
        continue;
      }
      if (description != nullptr) return Bad("two descriptions");
      description = &record;
    }
    if (description == nullptr) return Bad("no description data.pkl");
    folder_ = description->name.substr(0, description->name.size() - kDescription.size());
    RETURN_IF_ERROR(CheckByteOrder(archive));

    ASSIGN_OR_RETURN(const std::string bytes, archive.ReadPayload(*description, kMostDescription));
    const absl::StatusOr<pickle::Pickle> pickle = pickle::Pickle::Read(bytes, CatalogLimits(), /*persistent_ids=*/true);
    if (!pickle.ok()) return absl::Status(pickle.status().code(), absl::StrCat(Where(), pickle.status().message()));
    return Describe(archive, *pickle);
  }

 private:
  std::string Where() const {
    return absl::StrCat(file_.path(), ", stream at ", place_.at, " + ", place_.length, ": ");
  }
  template <typename... Text>
  absl::Status Bad(const Text&... text) const {
    return absl::DataLossError(absl::StrCat(Where(), text...));
  }
  template <typename... Text>
  absl::Status CannotRead(const Text&... text) const {
    return absl::UnimplementedError(absl::StrCat(Where(), text...));
  }

  // Streams of PyTorch before 2.1 have no such record and were little-endian wherever anybody wrote them.
  absl::Status CheckByteOrder(const zip::ZipArchive& archive) const {
    const zip::ZipArchive::Record* const record = archive.Find(absl::StrCat(folder_, "/byteorder"));
    if (record == nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string order, archive.ReadPayload(*record, kMostByteOrder));
    if (order == "little") return absl::OkStatus();
    return order == "big" ? CannotRead("big-endian elements") : Bad("the byte order ", io::Shown(order));
  }

  // Arguments of _rebuild_tensor_v2: storage, offset, size, strides, requires_grad, hooks [, flags];
  // of _rebuild_tensor_v3: storage, offset, size, strides, requires_grad, hooks, dtype [, flags].
  absl::StatusOr<TensorStream> Describe(const zip::ZipArchive& archive, const pickle::Pickle& pickle) {
    const Value root = pickle.root();
    const bool v3 = pickle.IsObjectOf(root, pickle::Known::kRebuildTensorV3);
    if (!v3 && !pickle.IsObjectOf(root, pickle::Known::kRebuildTensorV2)) return CannotRead("it holds no plain tensor");
    const absl::Span<const Value> given = pickle.Tuple(pickle.Arguments(root));
    const size_t needed = v3 ? 7 : 6;
    if (given.size() < needed || given.size() > needed + 1) return Bad("a tensor of ", given.size(), " arguments");

    TensorStream stream;
    stream.dtype = dtype_;
    RETURN_IF_ERROR(CheckDType(pickle, v3, given));
    const std::optional<int64_t> offset = pickle.Int(given[1]);
    if (!Ints(pickle, given[2], &stream.shape) || !Ints(pickle, given[3], &stream.strides) || !offset) {
      return Bad("no offset, shape and strides");
    }
    if (stream.shape != shape_) return Bad("a tensor of shape ", io::Shown(stream.shape), ", not ", io::Shown(shape_));
    if (given.size() > needed) {
      RETURN_IF_ERROR(ReadFlags(pickle, given[needed], &stream));
    }
    RETURN_IF_ERROR(FindRecord(archive, pickle, given[0], &stream));
    RETURN_IF_ERROR(Place(*offset, &stream));
    return stream;
  }

  static bool Ints(const pickle::Pickle& pickle, Value v, std::vector<int64_t>* out) {
    if (pickle.kind(v) != Kind::kTuple) return false;
    for (const Value one : pickle.Tuple(v)) {
      const std::optional<int64_t> number = pickle.Int(one);
      if (!number) return false;
      out->push_back(*number);
    }
    return true;
  }

  // The persistent id of a storage: ("storage", its class, key, device, number of elements).
  absl::Span<const Value> Storage(const pickle::Pickle& pickle, Value v) const {
    if (pickle.kind(v) != Kind::kPersistent || pickle.kind(pickle.Arguments(v)) != Kind::kTuple) return {};
    const absl::Span<const Value> id = pickle.Tuple(pickle.Arguments(v));
    const bool right = id.size() >= 5 && pickle.IsText(id[0], "storage") && pickle.kind(id[1]) == Kind::kName &&
                       pickle.kind(id[2]) == Kind::kString && pickle.Int(id[4]).has_value();
    return right ? id : absl::Span<const Value>();
  }

  absl::Status CheckDType(const pickle::Pickle& pickle, bool v3, absl::Span<const Value> given) {
    const absl::Span<const Value> id = Storage(pickle, given[0]);
    if (id.empty()) return Bad("a tensor without a storage");
    untyped_ = pickle.Name(id[1]) == "UntypedStorage" && pickle.Module(id[1]) == "torch.storage";
    std::optional<DType> found;
    std::string name;
    if (v3) {
      if (!untyped_ || pickle.kind(given[6]) != Kind::kName) return Bad("a storage without a dtype");
      name = absl::StrCat(status::View(pickle.Module(given[6])), ".", status::View(pickle.Name(given[6])));
      found = DTypeOfTorch(name);
    } else {
      name = std::string(pickle.Name(id[1]));
      found = DTypeOfStorage(pickle, id[1]);
    }
    if (!found) return CannotRead("elements of ", io::Shown(name));
    if (*found != dtype_)
      return Bad("elements of ", io::Shown(name), " where the metadata says ", status::View(Name(dtype_)));
    return absl::OkStatus();
  }

  absl::Status ReadFlags(const pickle::Pickle& pickle, Value flags, TensorStream* stream) const {
    if (pickle.kind(flags) == Kind::kNone) return absl::OkStatus();
    if (pickle.kind(flags) != Kind::kDict) return Bad("flags that are no dict");
    const bool is_complex = dtype_ == DType::kC32 || dtype_ == DType::kC64 || dtype_ == DType::kC128;
    const bool is_float = dtype_ == DType::kF32 || dtype_ == DType::kF64;
    absl::Status status;
    pickle.ForEachItem(flags, [&](Value key, Value value) {
      if (!pickle.IsTrue(value) && pickle.kind(value) == Kind::kBool) return true;
      if (pickle.IsText(key, "conj") && is_complex) {
        stream->conjugated = true;
      } else if (pickle.IsText(key, "neg") && (is_complex || is_float)) {
        stream->negated = true;
      } else {
        status = CannotRead("a tensor with the flag ",
                            pickle.kind(key) == Kind::kString ? io::Shown(pickle.Text(key)) : std::string("?"));
      }
      return status.ok();
    });
    return status;
  }

  absl::Status FindRecord(const zip::ZipArchive& archive, const pickle::Pickle& pickle, Value storage,
                          TensorStream* stream) {
    const absl::Span<const Value> id = Storage(pickle, storage);
    const std::optional<int64_t> bytes = CheckedMul(*pickle.Int(id[4]), untyped_ ? 1 : SizeOf(dtype_));
    const std::string_view key = pickle.Text(id[2]);
    const zip::ZipArchive::Record* const record =
        archive.Find(absl::StrCat(folder_, "/data/", status::View(key.substr(0, 64))));
    if (record == nullptr) return Bad("no record of the elements, data/", io::Shown(key));
    if (!bytes || *bytes != record->length) {
      return Bad("a storage of ", *pickle.Int(id[4]), untyped_ ? " bytes" : " elements", " in a record of ",
                 record->length, " bytes");
    }
    ASSIGN_OR_RETURN(const int64_t at, archive.PayloadAt(*record));
    stream->record_at = at;
    stream->record_length = record->length;
    if (archive.has_checksums()) stream->record_crc32 = record->crc32;
    return absl::OkStatus();
  }

  // Where the first element is, after it is sure that the last one is in the record too.
  absl::Status Place(int64_t offset, TensorStream* stream) const {
    std::optional<int64_t> last = offset;
    std::optional<int64_t> dense = SizeOf(dtype_);  // bytes; strides of 0 make this more than the storage has
    bool inside = offset >= 0 && stream->strides.size() == stream->shape.size();
    bool empty = false;
    for (size_t d = 0; inside && d < stream->shape.size(); ++d) {
      inside = stream->strides[d] >= 0 && stream->shape[d] >= 0;
      empty |= stream->shape[d] == 0;
      const std::optional<int64_t> step = CheckedMul(std::max<int64_t>(stream->shape[d] - 1, 0), stream->strides[d]);
      last = last && step ? CheckedAdd(*last, *step) : std::nullopt;
      dense = dense && inside ? CheckedMul(*dense, std::max<int64_t>(stream->shape[d], 1)) : std::nullopt;
    }
    const int64_t elements = stream->record_length / SizeOf(dtype_);
    if (!inside || !last || !dense || (!empty && *last >= elements) || (empty && offset > elements)) {
      return Bad("elements of shape ", io::Shown(stream->shape), " and strides ", io::Shown(stream->strides), " from ",
                 offset, " on leave a storage of ", elements);
    }
    // Nothing is multiplied by these, and any number may stand there.
    for (size_t d = 0; d < stream->shape.size(); ++d) {
      if (empty || stream->shape[d] == 1) stream->strides[d] = 0;
    }
    stream->first_at = stream->record_at + offset * SizeOf(dtype_);
    return absl::OkStatus();
  }

  const io::ReadFile& file_;
  const Catalog::Place& place_;
  const DType dtype_;
  const absl::Span<const int64_t> shape_;
  std::string folder_;  // of the archive: "archive"
  bool untyped_ = false;
};

}  // namespace

absl::StatusOr<TensorStream> FindTensorStream(const io::ReadFile& file, const Catalog::Place& place, DType dtype,
                                              absl::Span<const int64_t> shape) {
  return StreamReader(file, place, dtype, shape).Find();
}

}  // namespace reshard::dcp
