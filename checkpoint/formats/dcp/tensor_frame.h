// The stream of one chunk in a `.distcp` file: what torch.save writes for a dense tensor, without its elements.
#ifndef RESHARD_CHECKPOINT_FORMATS_DCP_TENSOR_FRAME_H_
#define RESHARD_CHECKPOINT_FORMATS_DCP_TENSOR_FRAME_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/formats/zip/stored_archive.h"
#include "reshard/layout/dtype.h"

namespace reshard::dcp {

// "float32" for kF32: the name of the dtype in the module `torch`.
std::string_view TorchName(DType dtype);

// A frame for elements of this dtype in a dense row-major box of this shape. InvalidArgument if they have more bytes
// than StoredArchive::kLargest: such a box must be split.
absl::StatusOr<zip::StoredArchive> TensorFrame(DType dtype, absl::Span<const int64_t> shape);

}  // namespace reshard::dcp

#endif  // RESHARD_CHECKPOINT_FORMATS_DCP_TENSOR_FRAME_H_
