#include "checkpoint/formats/torch_save/tensor_stream.h"

#include <utility>

#include "checkpoint/formats/pickle/opaque.h"
#include "checkpoint/formats/torch_save/archive.h"
#include "checkpoint/formats/torch_save/tensor_record.h"
#include "checkpoint/io/show.h"
#include "status/macros.h"

namespace reshard::torch_save {

absl::StatusOr<catalog::StoredElements> FindTensorStream(const io::ReadFile& file, const Catalog::FileRange& place,
                                                         DType dtype, absl::Span<const int64_t> shape) {
  CatalogLimits limits;
  limits.metadata_bytes = int64_t{1} << 20;  // PyTorch writes some hundreds
  ASSIGN_OR_RETURN(const Archive archive, Archive::Open(file, place.at, place.length, limits));
  const pickle::Pickle& description = archive.description();
  if (!IsTensor(description, description.root())) {
    return archive.CannotRead(
        "it holds ",
        io::Shown(IsAnyTensor(description, description.root()) ? KindOfTensor(description, description.root())
                                                               : pickle::KindOfOpaque(description, description.root())),
        ", not a plain tensor");
  }
  const Expected expected = {dtype, shape};
  ASSIGN_OR_RETURN(TensorRecord record, ReadTensorRecord(archive, description.root(), &expected));
  return std::move(record.elements);
}

}  // namespace reshard::torch_save
