// Copying a region from one strided fragment to another, one pass, no staging.
//
// A region is a product of runs: for every dimension a list of runs of neighbouring indices. The copy is prepared once
// for the strides of both sides and executed many times. Preparing drops what is not a loop: inner dimensions that lie
// contiguously on both sides become one run of bytes, evenly spaced runs become one counted loop.
#ifndef RESHARD_RUNTIME_STRIDED_COPY_H_
#define RESHARD_RUNTIME_STRIDED_COPY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

namespace reshard {

// `length` neighbouring indices of one dimension: from..from+length on one side, to..to+length on the other.
struct IndexRun {
  int64_t from = 0;
  int64_t to = 0;
  int64_t length = 0;
  bool operator==(const IndexRun&) const = default;
};

// One list of runs a dimension; no dimensions mean one element. The runs of a list are disjoint on both sides.
using Region = std::vector<std::vector<IndexRun>>;

// How many indices the runs of one dimension have together.
int64_t IndicesOf(const std::vector<IndexRun>& runs);

// The same region with one side replaced by the message that carries it: its elements without gaps, in row-major order.
Region ToMessage(const Region& region);    // from the fragment to the message
Region FromMessage(const Region& region);  // from the message to the fragment
// Strides of that message in elements.
absl::InlinedVector<int64_t, 6> MessageStrides(const Region& region);

// The whole of a fragment of this shape, at the same place on both sides.
Region WholeRegion(absl::Span<const int64_t> shape);

// How the bytes are written.
enum class CopyMode {
  kCached,     // through the caches: whoever reads them next finds them there
  kStreaming,  // past the caches, which is quicker once they do not fit anyway (x86-64; elsewhere like kCached)
};

// The mode for a step that writes `bytes` in all, by `threads` threads.
CopyMode CopyModeFor(int64_t bytes, int64_t threads);

// A regular part of a copy, in bytes: for every i of the loops, outermost first, `run` bytes from
// from + sum(i*from_step) to to + sum(i*to_step).
struct CopyBox {
  struct Loop {
    int64_t count = 0;
    int64_t from_step = 0;
    int64_t to_step = 0;
  };
  int64_t from = 0;
  int64_t to = 0;
  absl::InlinedVector<Loop, 4> loops;
  int64_t run = 0;
};

// Copies of a StridedCopy share what was prepared, so that a thousand tensors of one shape keep one loop nest warm.
class StridedCopy {
 public:
  // Copies nothing.
  StridedCopy() = default;
  // `element_size` is 1, 2, 4, 8 or 16 bytes; strides count elements and have one entry a dimension of the region.
  StridedCopy(const Region& region, int64_t element_size, absl::Span<const int64_t> from_strides,
              absl::Span<const int64_t> to_strides);

  // Bytes it writes.
  int64_t bytes() const { return bytes_; }
  // Length in bytes of the shortest contiguous run that it copies; 0 when it copies nothing.
  int64_t shortest_run() const;
  // True when it copies one contiguous run of bytes (or nothing): from + from_offset() to to + to_offset(), in bytes.
  bool contiguous() const { return bytes_ == 0 || nest_->contiguous(); }
  int64_t from_offset() const { return bytes_ == 0 ? 0 : nest_->from_offset + nest_->levels[0].segments[0].from; }
  int64_t to_offset() const { return bytes_ == 0 ? 0 : nest_->to_offset + nest_->levels[0].segments[0].to; }
  // Into how many parts the work can be cut at most; each is worth a thread's trouble only if it has bytes enough.
  int64_t max_parts() const { return bytes_ == 0 ? 0 : nest_->outer_count; }

  // Post-condition: to[region.to] == from[region.from], no other byte is written. `from` and `to` point at index
  // (0, 0, ..) of the two fragments, which must not overlap.
  void Run(const void* from, void* to, CopyMode mode = CopyMode::kCached) const;
  // The part-th of `parts` pieces of the work: pieces are disjoint, and all of them together are Run().
  void RunPart(const void* from, void* to, int64_t part, int64_t parts, CopyMode mode = CopyMode::kCached) const;
  // The copy as boxes, which are disjoint and all of it together: as many as its irregular dimensions have runs,
  // multiplied.
  void VisitBoxes(absl::FunctionRef<void(const CopyBox&)> visit) const;
  // Asks for the first cache lines of the side that is read, or of the one that is written, for a caller that will Run
  // the copy soon. Worth it for one of many small copies, whose memory the processor cannot foresee.
  void FetchAhead(const void* fragment, bool written) const;

 private:
  struct Segment {  // offsets in bytes
    int64_t from = 0;
    int64_t to = 0;
    int64_t count = 0;
  };
  // One loop of the nest. Item i of a segment starts at (from + i*from_step, to + i*to_step).
  struct Level {
    int64_t from_step = 0;
    int64_t to_step = 0;
    absl::InlinedVector<Segment, 1> segments;
  };
  struct Nest {
    int64_t outer_count = 0;
    int64_t from_offset = 0;
    int64_t to_offset = 0;
    // Outermost first. The last level is the contiguous run: its steps are 1 and its counts are bytes.
    absl::InlinedVector<Level, 2> levels;

    bool contiguous() const { return levels.size() == 1 && levels[0].segments.size() == 1; }
    void AddDimension(const std::vector<IndexRun>& runs, int64_t from_stride, int64_t to_stride);
    void MergeLevels();
    void AddByteRuns(int64_t element_size);
    void RunSegment(size_t level, const char* from, char* to, int64_t count, CopyMode mode) const;
  };

  int64_t bytes_ = 0;
  std::shared_ptr<const Nest> nest_;  // null when nothing is copied
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_STRIDED_COPY_H_
