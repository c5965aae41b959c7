#include "checkpoint/formats/deepspeed/flat.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "layout/cut.h"
#include "layout/flatten.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::deepspeed {

absl::StatusOr<FlatTensor> ReadFlatTensor(const torch_save::Archive& archive, int32_t file, pickle::Pickle::Value value,
                                          std::string_view what) {
  if (!torch_save::IsTensor(archive.description(), value)) return archive.Bad(status::View(what), " is not a tensor");
  FlatTensor flat{file, {}};
  ASSIGN_OR_RETURN(flat.record, torch_save::ReadTensorRecord(archive, value));
  const catalog::StoredElements& elements = flat.record.elements;
  if (!flat.record.dtype)
    return archive.CannotRead(status::View(what), " has elements of type ", flat.record.stored_dtype);
  if (elements.shape.size() != 1 || (elements.shape[0] > 1 && elements.strides[0] != 1) || elements.conjugated ||
      elements.negated) {
    return archive.Bad(status::View(what), " is not flat");
  }
  return flat;
}

absl::Status FlatBuffer::Add(FlatTensor tensor) {
  if (!parts_.empty() && parts_[0].record.dtype != tensor.record.dtype) {
    return absl::DataLossError("flat tensors that belong together have different types of elements");
  }
  ends_.push_back(count() + tensor.count());
  parts_.push_back(std::move(tensor));
  return absl::OkStatus();
}

absl::Status FlatBuffer::AddChunks(absl::Span<const int64_t> shape, int64_t first, int64_t at, int64_t count,
                                   catalog::CatalogBuilder& builder) const {
  for (size_t p = std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin(); count > 0; ++p) {
    const FlatTensor& part = parts_[p];
    const int64_t within = at - (ends_[p] - part.count());
    const int64_t here = std::min(count, ends_[p] - at);
    const auto boxes =
        shape.empty() ? std::vector<std::vector<Interval>>(1) : layout::BoxesOfRun(shape, {first, first + here});
    for (const std::vector<Interval>& box : boxes) {
      catalog::StoredElements elements = part.record.elements;
      std::vector<int64_t> offset;
      int64_t number = 0;  // of the first element of the box
      elements.shape.clear();
      for (size_t d = 0; d < shape.size(); ++d) {
        offset.push_back(box[d].begin);
        elements.shape.push_back(box[d].end - box[d].begin);
        number = number * shape[d] + box[d].begin;
      }
      elements.strides.assign(shape.size(), 1);
      for (size_t d = shape.size(); d-- > 1;) elements.strides[d - 1] = elements.strides[d] * elements.shape[d];
      elements.first_at += (within + number - first) * SizeOf(elements.dtype);
      RETURN_IF_ERROR(builder.AddChunk(offset, part.file, std::move(elements)));
    }
    first += here, at += here, count -= here;
  }
  return absl::OkStatus();
}

}  // namespace reshard::deepspeed
