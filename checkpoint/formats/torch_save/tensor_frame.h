// What torch.save writes around the elements of a dense tensor, and for a value without tensors. A `.distcp` file has
// one for each chunk and each byte item.
#ifndef RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_TENSOR_FRAME_H_
#define RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_TENSOR_FRAME_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/formats/zip/stored_archive.h"
#include "reshard/layout/dtype.h"

namespace reshard::torch_save {

// A frame for elements of this dtype in a dense row-major box of this shape. InvalidArgument if they have more bytes
// than StoredArchive::kLargest: such a box must be split.
absl::StatusOr<zip::StoredArchive> TensorFrame(DType dtype, absl::Span<const int64_t> shape);

// The whole of what torch.save writes for the value that `pickle` is a pickle of.
std::string ValueArchive(std::string_view pickle);

}  // namespace reshard::torch_save

#endif  // RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_TENSOR_FRAME_H_
