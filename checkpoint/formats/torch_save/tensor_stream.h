// The stream in which PyTorch's distributed checkpoints store a chunk: what torch.save writes for one tensor.
#ifndef RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_TENSOR_STREAM_H_
#define RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_TENSOR_STREAM_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/catalog/stored_elements.h"
#include "checkpoint/io/files.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/layout/dtype.h"

namespace reshard::torch_save {

// Parses the stream at `place` of a chunk with this `shape` and `dtype`. Reads its ends, not the elements.
// Post-condition: every element is within the record. DataLoss: it is not such a stream, has another shape or dtype, or
// has elements outside the record. Unimplemented: big-endian elements, compressed records, a dtype that this library
// does not have, anything but a plain tensor. InvalidArgument: a description that asks for code to be run.
absl::StatusOr<catalog::StoredElements> FindTensorStream(const io::ReadFile& file, const Catalog::FileRange& place,
                                                         DType dtype, absl::Span<const int64_t> shape);

}  // namespace reshard::torch_save

#endif  // RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_TENSOR_STREAM_H_
