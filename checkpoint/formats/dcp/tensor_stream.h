// Reads the stream in which PyTorch's distributed checkpoints store a chunk: what torch.save writes for one tensor, an
// archive with a description and the elements.
#ifndef RESHARD_CHECKPOINT_FORMATS_DCP_TENSOR_STREAM_H_
#define RESHARD_CHECKPOINT_FORMATS_DCP_TENSOR_STREAM_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/io/files.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/layout/dtype.h"

namespace reshard::dcp {

// Where the elements of a chunk are, and in which order.
struct TensorStream {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements, not negative, in any order; 0 where they do not matter
  int64_t first_at = 0;          // offset in the file of the first element, in bytes
  bool conjugated = false;       // the values are the conjugates of what is stored
  bool negated = false;          // the values are the negatives of what is stored
  // The record that contains the elements: its bytes in the file, and the CRC-32 that the archive gives for them, if
  // any.
  int64_t record_at = 0;
  int64_t record_length = 0;
  std::optional<uint32_t> record_crc32;
};

// Parses the stream at `place` of a chunk with this `shape` and `dtype`. Reads its ends, not the elements.
// Post-condition: every element is within the record. DataLoss: it is not such a stream, has another shape or dtype, or
// has elements outside the record. Unimplemented: big-endian elements, compressed records, a dtype that this library
// does not have, anything but a plain tensor. InvalidArgument: a description that asks for code to be run.
absl::StatusOr<TensorStream> FindTensorStream(const io::ReadFile& file, const Catalog::Place& place, DType dtype,
                                              absl::Span<const int64_t> shape);

// Reads the box of `size` elements at `offset` of the chunk into `out`, dense and row-major. Reads little more than the
// box: runs that are at most 2 KiB apart are read together; a box that is one run is read directly into `out`. Uses up
// to 4 MiB of memory.
// InvalidArgument: the box is not within the chunk, or `out` has another size. DataLoss, Unavailable: the file.
absl::Status ReadBox(const io::ReadFile& file, const TensorStream& stream, absl::Span<const int64_t> offset,
                     absl::Span<const int64_t> size, absl::Span<char> out);

}  // namespace reshard::dcp

#endif  // RESHARD_CHECKPOINT_FORMATS_DCP_TENSOR_STREAM_H_
