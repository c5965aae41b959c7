#include "checkpoint/formats/torch_save/storage_id.h"

#include "absl/types/span.h"
#include "checkpoint/formats/torch_save/torch_dtype.h"

namespace reshard::torch_save {
namespace {

using Kind = pickle::Pickle::Kind;
using Value = pickle::Pickle::Value;

// Types of elements that this library does not have, of which a file still has to be read.
struct QuantizedType {
  std::string_view type;
  int64_t bytes;
};
constexpr QuantizedType kQuantized[] = {
    {"QInt8Storage", 1}, {"QUInt8Storage", 1}, {"QInt32Storage", 4}, {"QUInt4x2Storage", 1}, {"QUInt2x4Storage", 1},
};

std::optional<int64_t> ElementBytes(const StorageId& id) {
  if (id.is_untyped) return 1;
  if (id.dtype) return SizeOf(*id.dtype);
  for (const QuantizedType& row : kQuantized) {
    if (row.type == id.type) return row.bytes;
  }
  return std::nullopt;
}

}  // namespace

std::optional<StorageId> ReadStorageId(const pickle::Pickle& pickle, Value value) {
  if (pickle.kind(value) != Kind::kPersistent || pickle.kind(pickle.Arguments(value)) != Kind::kTuple) {
    return std::nullopt;
  }
  const absl::Span<const Value> parts = pickle.Tuple(pickle.Arguments(value));
  const bool right = parts.size() >= 5 && pickle.IsText(parts[0], "storage") && pickle.kind(parts[1]) == Kind::kName &&
                     pickle.kind(parts[2]) == Kind::kString && pickle.Int(parts[4]).has_value();
  if (!right) return std::nullopt;
  StorageId id;
  id.module = pickle.Module(parts[1]);
  id.type = pickle.Name(parts[1]);
  id.key = pickle.Text(parts[2]);
  id.elements = *pickle.Int(parts[4]);
  id.is_untyped = id.type == "UntypedStorage" && (id.module == "torch.storage" || id.module == "torch");
  // Old versions of PyTorch had classes of their own for storages of GPUs.
  if (id.module == "torch" || id.module == "torch.cuda") id.dtype = DTypeOfStorage(id.type);
  id.element_bytes = ElementBytes(id);
  if (parts.size() > 5 && pickle.kind(parts[5]) == Kind::kTuple) {
    const absl::Span<const Value> view = pickle.Tuple(parts[5]);
    const std::optional<int64_t> first = view.size() == 3 ? pickle.Int(view[1]) : std::nullopt;
    if (!first || *first < 0) return std::nullopt;
    id.first = *first;
  }
  return id;
}

}  // namespace reshard::torch_save
