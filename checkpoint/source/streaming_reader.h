// Reads all of a box, part by part, each byte of it once, and compares checksums on the way.
#ifndef RESHARD_CHECKPOINT_SOURCE_STREAMING_READER_H_
#define RESHARD_CHECKPOINT_SOURCE_STREAMING_READER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "checkpoint/source/box.h"
#include "checkpoint/source/record_check.h"
#include "checkpoint/source/source.h"

namespace reshard::source {

struct Overlap;

// For one thread.
class StreamingReader {
 public:
  // What was read: a box, dense and row-major, in `bytes`, which may be swapped for another string.
  using Taker = absl::FunctionRef<absl::Status(const Box& box, std::string& bytes)>;

  // Reads a box of a tensor of source->catalog(). The source must outlive the reader.
  StreamingReader(Source* source, int64_t tensor, Box box);

  // Reads a part of the box, and calls `take` with disjoint boxes that together are the part. The parts must be those
  // of catalog::CutBox, in that order. If a chunk lies in the box and its bytes are its elements in order, they then
  // come one after the other, and its checksums are compared when its last part is read, before `take` gets that. Other
  // chunks are compared as by Source::Read, before they are used. Errors as Source::Read.
  absl::Status Read(const Box& part, Taker take);

  // Reads all of the box, and calls `take` with disjoint boxes of at most `most` bytes that together are it. A chunk
  // that is compared is read whole, once, even if a part of it is outside the box; `take` may then get a part of a
  // chunk before it turns out to be damaged. Errors as Source::Read.
  absl::Status ReadAll(int64_t most, Taker take);

 private:
  absl::Status ReadStored(const Box& part, Taker take);
  absl::Status ReadParts(const Box& box, int64_t most, Taker take);
  absl::Status ReadThrough(const Overlap& overlap, const Box& chunk, int64_t most, Taker take);
  int64_t element() const { return SizeOf(*source_.catalog().tensors()[tensor_].dtype); }

  Source& source_;
  const int64_t tensor_;
  const Box box_;
  int64_t stored_ = 0;     // the tensor of source->stored() that it is
  bool is_stored_ = true;  // and not made of others
  std::string bytes_;
  std::string wanted_;                                  // what `take` gets of these
  absl::flat_hash_map<int64_t, RecordCheck> followed_;  // by chunk, until they are complete
};

}  // namespace reshard::source

#endif  // RESHARD_CHECKPOINT_SOURCE_STREAMING_READER_H_
