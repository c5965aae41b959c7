// Which pieces of a conversion are read together.
#ifndef RESHARD_CHECKPOINT_CONVERT_BATCHED_READS_H_
#define RESHARD_CHECKPOINT_CONVERT_BATCHED_READS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "checkpoint/output/output_plan.h"
#include "checkpoint/source/box.h"

namespace reshard::convert {

// Adjacent pieces: each begins where the one before ends in dimension `dim`, and they agree in all others, so that
// together they are a box. Columns are read together because a row of the box is one run in the source; each column
// alone would read a part of it. Rows are read together if they share a chunk: it then lies in the box, and its
// checksum is compared on the way (source::StreamingReader). A single piece is a batch, too.
struct BatchedRead {
  size_t first = 0;  // in BatchedReads::pieces
  size_t count = 1;
  size_t dim = 0;
};

struct BatchedReads {
  std::vector<int64_t> pieces;  // of the plan
  std::vector<BatchedRead> batches;

  absl::Span<const int64_t> PiecesOf(const BatchedRead& batch) const {
    return absl::MakeConstSpan(pieces).subspan(batch.first, batch.count);
  }
};

struct BatchLimits {
  int64_t pieces = 1;  // of a batch of columns
  int64_t bytes = 0;   // of a batch of several pieces
  // A run of this many bytes costs no more if it is read by itself.
  int64_t long_run = int64_t{64} << 10;
};

// Groups pieces of the plan, which are ascending, into batches, each piece into one. Columns whose rows are long runs
// by themselves stay alone.
BatchedReads BatchReads(const output::OutputPlan& plan, absl::Span<const int64_t> pieces, const BatchLimits& limits);

// The box of a piece of a tensor.
source::Box BoxOf(const output::OutputPlan& plan, const output::OutputPlan::OutputPiece& piece);
// The box of all pieces of a batch, which are of a tensor.
source::Box BoxOf(const output::OutputPlan& plan, const BatchedReads& reads, const BatchedRead& batch);

}  // namespace reshard::convert

#endif  // RESHARD_CHECKPOINT_CONVERT_BATCHED_READS_H_
