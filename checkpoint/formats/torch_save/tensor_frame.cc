#include "checkpoint/formats/torch_save/tensor_frame.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/formats/pickle/writer.h"
#include "checkpoint/formats/torch_save/torch_dtype.h"

namespace reshard::torch_save {
namespace {

void WriteInts(absl::Span<const int64_t> values, pickle::PickleWriter* out) {
  out->BeginTuple();
  for (const int64_t value : values) out->Int(value);
  out->EndTuple();
}

zip::StoredArchive Described(std::string_view pickle) {
  zip::StoredArchive archive("archive");
  archive.Add("data.pkl", pickle);
  archive.Add(".format_version", "1");
  archive.Add(".storage_alignment", absl::StrCat(zip::StoredArchive::kAlignment));
  archive.Add("byteorder", "little");
  archive.Add("version", "3\n");
  return archive;
}

}  // namespace

absl::StatusOr<zip::StoredArchive> TensorFrame(DType dtype, absl::Span<const int64_t> shape) {
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

  const std::string_view storage = StorageName(dtype);
  const bool typed = !storage.empty();
  pickle::PickleWriter pickle;
  pickle.Global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  pickle.BeginTuple();
  pickle.BeginTuple();
  pickle.Text("storage");
  if (typed) {
    pickle.Global("torch", storage);
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
  if (!typed) pickle.Global("torch", TorchName(dtype));
  pickle.EndTuple();
  pickle.Reduce();

  zip::StoredArchive archive = Described(std::move(pickle).Finish());
  archive.AddLarge("data/0", bytes);
  return archive;
}

std::string ValueArchive(std::string_view pickle) {
  const zip::StoredArchive archive = Described(pickle);
  return archive.Whole();
}

}  // namespace reshard::torch_save
