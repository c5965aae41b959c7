// Copies a region from one strided fragment to another in one pass, without staging.
//
// A region is a product of runs: for every dimension a list of runs of consecutive indices. A copy is prepared once for
// the strides of both sides and executed many times. Preparing it removes all needless loops: inner dimensions that are
// contiguous on both sides become one run of bytes, and evenly spaced runs become one counted loop.
#ifndef RESHARD_RUNTIME_STRIDED_COPY_H_
#define RESHARD_RUNTIME_STRIDED_COPY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

namespace reshard {

// `length` consecutive indices of one dimension: [from, from+length) on one side, [to, to+length) on the other.
struct IndexRun {
  int64_t from = 0;    // first index on the side that is read
  int64_t to = 0;      // first index on the side that is written
  int64_t length = 0;  // number of indices
  bool operator==(const IndexRun&) const = default;
};

// One list of runs per dimension; a region without dimensions is one element. The runs of a list are disjoint on both
// sides.
using Region = std::vector<std::vector<IndexRun>>;

// Total number of indices in the runs of one dimension.
int64_t IndicesOf(const std::vector<IndexRun>& runs);

// The same region with one side replaced by the message that carries it, which is its elements without gaps in
// row-major order.
Region ToMessage(const Region& region);    // from the fragment to the message
Region FromMessage(const Region& region);  // from the message to the fragment
// Strides of that message, in elements.
absl::InlinedVector<int64_t, 6> MessageStrides(const Region& region);

// All elements of a fragment of this shape, at the same indices on both sides.
Region WholeRegion(absl::Span<const int64_t> shape);

// How the bytes are written.
enum class CopyMode {
  kCached,     // through the caches, where the next reader finds them
  kStreaming,  // past the caches, which is faster once the data does not fit them (x86-64; elsewhere like kCached)
};

// The mode for a step in which `threads` threads write `bytes` bytes in total.
CopyMode CopyModeFor(int64_t bytes, int64_t threads);

// A regular part of a copy: for all values i of the loop counters, it copies `run` bytes from offset
// from + sum(i*from_step) to offset to + sum(i*to_step).
struct CopyBox {
  // One loop. Its counter runs from 0 to count-1.
  struct Loop {
    int64_t count = 0;      // number of iterations
    int64_t from_step = 0;  // bytes between iterations on the side that is read
    int64_t to_step = 0;    // bytes between iterations on the side that is written
  };
  int64_t from = 0;                    // byte offset of the first run on the side that is read
  int64_t to = 0;                      // byte offset of the first run on the side that is written
  absl::InlinedVector<Loop, 4> loops;  // outermost first
  int64_t run = 0;                     // length of one contiguous run in bytes
};

// A prepared copy. Copies of a StridedCopy share what was prepared, so that a thousand tensors of one shape keep one
// loop nest in the cache.
class StridedCopy {
 public:
  // Copies nothing.
  StridedCopy() = default;
  // `element_size` is 1, 2, 4, 8 or 16 bytes; strides count elements, one per dimension of the region.
  StridedCopy(const Region& region, int64_t element_size, absl::Span<const int64_t> from_strides,
              absl::Span<const int64_t> to_strides);

  // Number of bytes that it writes.
  int64_t bytes() const { return bytes_; }
  // Length in bytes of the shortest contiguous run that it copies; 0 if it copies nothing.
  int64_t shortest_run() const;
  // True if it copies nothing, or one contiguous run of bytes: bytes() of them from from_offset() to to_offset().
  bool contiguous() const { return bytes_ == 0 || nest_->contiguous(); }
  // Byte offset of the first byte that it reads; 0 if it copies nothing.
  int64_t from_offset() const { return bytes_ == 0 ? 0 : nest_->from_offset + nest_->levels[0].segments[0].from; }
  // Byte offset of the first byte that it writes; 0 if it copies nothing.
  int64_t to_offset() const { return bytes_ == 0 ? 0 : nest_->to_offset + nest_->levels[0].segments[0].to; }
  // Most parts into which RunPart can split the work; 0 if it copies nothing.
  int64_t max_parts() const { return bytes_ == 0 ? 0 : nest_->outer_count; }

  // Copies. Post-condition: to[region.to] == from[region.from], and no other byte is written. `from` and `to` point at
  // index (0, 0, ..) of the two fragments, which must not overlap.
  void Run(const void* from, void* to, CopyMode mode = CopyMode::kCached) const;
  // Copies the part-th of `parts` parts (0 <= part < parts). Parts are disjoint, and together they are what Run()
  // copies.
  void RunPart(const void* from, void* to, int64_t part, int64_t parts, CopyMode mode = CopyMode::kCached) const;
  // Copies bytes [begin, end) of the bytes() bytes, counted in the row-major order of the region, from and to the same
  // places as Run(). If one side is a message, these are bytes [begin, end) of the message.
  void RunBytes(const void* from, void* to, int64_t begin, int64_t end, CopyMode mode = CopyMode::kCached) const;
  // Calls `visit` with disjoint boxes that together are the whole copy. Their number is the product, over its irregular
  // dimensions, of the number of runs.
  void VisitBoxes(absl::FunctionRef<void(const CopyBox&)> visit) const;
  // Prefetches the first cache lines of the side that is read, or of the one that is written, for a caller that will
  // Run the copy soon. Worthwhile for many small copies, whose addresses the processor cannot predict.
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
    int64_t item_bytes = 1;  // that one item copies
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
    void CountItems();
    void RunSegment(size_t level, const char* from, char* to, int64_t count, CopyMode mode) const;
    void RunBytes(size_t level, const char* from, char* to, int64_t begin, int64_t end, CopyMode mode) const;
  };

  int64_t bytes_ = 0;
  std::shared_ptr<const Nest> nest_;  // null when nothing is copied
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_STRIDED_COPY_H_
