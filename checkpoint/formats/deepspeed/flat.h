// Flat buffers that are cut among ranks, and the parameters that lie in them.
#ifndef RESHARD_CHECKPOINT_FORMATS_DEEPSPEED_FLAT_H_
#define RESHARD_CHECKPOINT_FORMATS_DEEPSPEED_FLAT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/formats/pickle/machine.h"
#include "checkpoint/formats/torch_save/archive.h"
#include "checkpoint/formats/torch_save/tensor_record.h"

namespace reshard::deepspeed {

// A one-dimensional tensor in a file: elements that follow each other.
struct FlatTensor {
  int32_t file = 0;  // of the catalog
  torch_save::TensorRecord record;

  int64_t count() const { return record.elements.shape[0]; }
};

// Reads the value as a FlatTensor. DataLoss, Unimplemented: it is not one, or as ReadTensorRecord.
absl::StatusOr<FlatTensor> ReadFlatTensor(const torch_save::Archive& archive, int32_t file, pickle::Pickle::Value value,
                                          std::string_view what);

// Flat tensors one after the other.
class FlatBuffer {
 public:
  // DataLoss: the elements are of another type than those before.
  absl::Status Add(FlatTensor tensor);
  bool empty() const { return parts_.empty(); }
  int64_t count() const { return empty() ? 0 : ends_.back(); }

  // Adds chunks to the tensor, of this shape, that the builder was given last: its `count` elements from number `first`
  // on are those of the buffer from `at` on. Requires that they are all there.
  //
  // Example: a parameter [2, 3] in a buffer of two tensors of 4 elements each, at 2: chunks [0, 0) + [1, 2) from the
  // first tensor; [0, 2) + [1, 1) and [1, 0) + [1, 3) from the second.
  absl::Status AddChunks(absl::Span<const int64_t> shape, int64_t first, int64_t at, int64_t count,
                         catalog::CatalogBuilder& builder) const;

  const torch_save::TensorRecord& like() const { return parts_[0].record; }

 private:
  std::vector<FlatTensor> parts_;
  std::vector<int64_t> ends_;  // of each part
};

}  // namespace reshard::deepspeed

#endif  // RESHARD_CHECKPOINT_FORMATS_DEEPSPEED_FLAT_H_
