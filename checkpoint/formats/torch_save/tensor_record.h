// A tensor in the description of an archive of torch.save.
#ifndef RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_TENSOR_RECORD_H_
#define RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_TENSOR_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/catalog/stored_elements.h"
#include "checkpoint/formats/pickle/machine.h"
#include "checkpoint/formats/torch_save/archive.h"
#include "reshard/layout/dtype.h"

namespace reshard::torch_save {

struct TensorRecord {
  std::string stored_dtype;          // by PyTorch's name: "torch.float32"
  std::optional<DType> dtype;        // nullopt: one that this library does not have
  catalog::StoredElements elements;  // without a dtype only shape and record are known
  bool requires_grad = false;
};

// Whether the value is a plain tensor (_rebuild_tensor, _v2 or _v3), or one of PyTorch's own classes with attributes,
// such as a buffer, which are left out.
bool IsTensor(const pickle::Pickle& description, pickle::Pickle::Value value);

// Whether the value is one of these, a parameter, or a tensor of a kind that only PyTorch or its class can read.
bool IsAnyTensor(const pickle::Pickle& description, pickle::Pickle::Value value);

// Of a tensor that IsAnyTensor but not IsTensor: "a sparse tensor", "a tensor of the class torchao.Float8Tensor".
std::string KindOfTensor(const pickle::Pickle& description, pickle::Pickle::Value value);

// What a tensor must be because something else says so.
struct Expected {
  DType dtype = DType::kF32;
  absl::Span<const int64_t> shape;
};

// What the description says of a tensor, for which IsTensor. Reads where its record is, not the elements.
// DataLoss: broken, other than `expected` where that is not null, or elements outside the record. Unimplemented: a flag
// that this library does not know; a dtype that it does not have where one is expected.
absl::StatusOr<TensorRecord> ReadTensorRecord(const Archive& archive, pickle::Pickle::Value tensor,
                                              const Expected* expected = nullptr);

}  // namespace reshard::torch_save

#endif  // RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_TENSOR_RECORD_H_
