// The stream that PyTorch's distributed checkpoints store a chunk in: what torch.save writes for one tensor, an archive
// with a description and the elements.
#ifndef RESHARD_CHECKPOINT_DCP_TENSOR_STREAM_H_
#define RESHARD_CHECKPOINT_DCP_TENSOR_STREAM_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/io/files.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/layout/dtype.h"

namespace reshard {

// Where the elements of a chunk are and how they lie.
struct TensorStream {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements, none negative; of any order; 0 where they do not matter
  int64_t first_at = 0;          // the byte of the file at which the first element begins
  bool conjugated = false;       // the values are the conjugates of what is stored
  bool negated = false;          // ... the negatives
  // The record that the elements are in: its bytes of the file and the CRC-32 that the archive says they have, if any.
  int64_t record_at = 0;
  int64_t record_length = 0;
  std::optional<uint32_t> record_crc32;
};

// Looks into the stream at `place` for a chunk of `shape` and `dtype`; reads its ends, not the elements.
// Post-condition: every element lies within the record. DataLoss: not such a stream; another shape or dtype; elements
// outside the record. Unimplemented: big-endian elements, compressed records, a dtype that this library does not have,
// something else than a plain tensor. InvalidArgument: a description that wants code to run.
absl::StatusOr<TensorStream> FindTensorStream(const ReadFile& file, const Catalog::Place& place, DType dtype,
                                              absl::Span<const int64_t> shape);

// Reads the box of `size` elements at `offset` of the chunk into `out`, dense and row-major. Reads little more than the
// box: runs that are at most 2 KiB apart are read together; a box that is one run goes into `out` at once. Takes up
// to 4 MiB of memory.
// InvalidArgument: a box that leaves the chunk, `out` of another size. DataLoss, Unavailable: the file.
absl::Status ReadBox(const ReadFile& file, const TensorStream& stream, absl::Span<const int64_t> offset,
                     absl::Span<const int64_t> size, absl::Span<char> out);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_DCP_TENSOR_STREAM_H_
