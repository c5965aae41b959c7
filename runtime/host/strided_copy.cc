#include "reshard/runtime/strided_copy.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <thread>
#include <utility>

#include "runtime/host/copy_rows.h"
#include "runtime/host/stream_rows.h"

namespace reshard {
namespace {

// Runs that continue each other on both sides become one.
std::vector<IndexRun> Coalesce(const std::vector<IndexRun>& runs) {
  std::vector<IndexRun> out;
  for (const IndexRun& run : runs) {
    if (run.length == 0) continue;
    if (!out.empty() && out.back().from + out.back().length == run.from &&
        out.back().to + out.back().length == run.to) {
      out.back().length += run.length;
    } else {
      out.push_back(run);
    }
  }
  return out;
}

// True when all runs have one length and follow each other at one distance on each side.
bool EvenlySpaced(const std::vector<IndexRun>& runs) {
  if (runs.size() < 2) return false;
  const int64_t from_step = runs[1].from - runs[0].from;
  const int64_t to_step = runs[1].to - runs[0].to;
  for (size_t i = 1; i < runs.size(); ++i) {
    if (runs[i].length != runs[0].length || runs[i].from - runs[i - 1].from != from_step ||
        runs[i].to - runs[i - 1].to != to_step) {
      return false;
    }
  }
  return true;
}

// Number of rows of `runs` runs each that touch no more than 256 cache lines per side.
int64_t RowsPerBlock(size_t runs) { return std::max<int64_t>(1, 256 / static_cast<int64_t>(runs)); }

// The region with one side replaced by where its elements lie in a message without gaps.
Region WithMessage(Region region, int64_t IndexRun::*side) {
  for (auto& runs : region) {
    int64_t at = 0;
    for (IndexRun& run : runs) {
      run.*side = at;
      at += run.length;
    }
  }
  return region;
}

}  // namespace

int64_t IndicesOf(const std::vector<IndexRun>& runs) {
  int64_t indices = 0;
  for (const IndexRun& run : runs) indices += run.length;
  return indices;
}

CopyMode CopyModeFor(int64_t bytes, int64_t threads) {
  // Measured: below, source and destination still meet in a core's caches when the step is repeated.
  constexpr int64_t kBytesPerCore = int64_t{12} << 20;
  // Asking opens a file each time.
  static const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  return bytes / std::clamp<int64_t>(threads, 1, cores) >= kBytesPerCore ? CopyMode::kStreaming : CopyMode::kCached;
}

Region ToMessage(const Region& region) { return WithMessage(region, &IndexRun::to); }
Region FromMessage(const Region& region) { return WithMessage(region, &IndexRun::from); }

absl::InlinedVector<int64_t, 6> MessageStrides(const Region& region) {
  absl::InlinedVector<int64_t, 6> strides(region.size());
  int64_t stride = 1;
  for (size_t d = region.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= IndicesOf(region[d]);
  }
  return strides;
}

Region WholeRegion(absl::Span<const int64_t> shape) {
  Region region;
  region.reserve(shape.size());
  for (int64_t size : shape) region.push_back({{0, 0, size}});
  return region;
}

StridedCopy::StridedCopy(const Region& region, int64_t element_size, absl::Span<const int64_t> from_strides,
                         absl::Span<const int64_t> to_strides) {
  auto nest = std::make_shared<Nest>();
  int64_t bytes = element_size;
  for (size_t d = 0; d < region.size(); ++d) {
    const std::vector<IndexRun> runs = Coalesce(region[d]);
    if (runs.empty()) return;
    bytes *= IndicesOf(runs);
    nest->AddDimension(runs, from_strides[d] * element_size, to_strides[d] * element_size);
  }
  nest->MergeLevels();
  nest->AddByteRuns(element_size);
  nest->CountItems();
  for (const Segment& segment : nest->levels.front().segments) nest->outer_count += segment.count;
  bytes_ = bytes;
  nest_ = std::move(nest);
}

void StridedCopy::Nest::AddDimension(const std::vector<IndexRun>& runs, int64_t from_stride, int64_t to_stride) {
  if (runs.size() == 1 || EvenlySpaced(runs)) {
    from_offset += runs[0].from * from_stride;
    to_offset += runs[0].to * to_stride;
    if (runs.size() > 1) {
      levels.push_back({(runs[1].from - runs[0].from) * from_stride,
                        (runs[1].to - runs[0].to) * to_stride,
                        {{0, 0, static_cast<int64_t>(runs.size())}}});
    }
    if (runs[0].length > 1) levels.push_back({from_stride, to_stride, {{0, 0, runs[0].length}}});
    return;
  }
  Level level{from_stride, to_stride, {}};
  for (const IndexRun& run : runs) {
    level.segments.push_back({run.from * from_stride, run.to * to_stride, run.length});
  }
  levels.push_back(std::move(level));
}

// A loop whose step is exactly what the loop inside it covers is the same loop, longer.
void StridedCopy::Nest::MergeLevels() {
  for (size_t k = levels.size(); k-- > 1;) {
    Level& outer = levels[k - 1];
    const Level& inner = levels[k];
    if (inner.segments.size() != 1) continue;
    const Segment& all = inner.segments[0];
    if (outer.from_step != all.count * inner.from_step || outer.to_step != all.count * inner.to_step) continue;
    for (Segment& segment : outer.segments) {
      segment = {segment.from + all.from, segment.to + all.to, segment.count * all.count};
    }
    outer.from_step = inner.from_step;
    outer.to_step = inner.to_step;
    levels.erase(levels.begin() + static_cast<std::ptrdiff_t>(k));
  }
}

void StridedCopy::Nest::AddByteRuns(int64_t element_size) {
  if (levels.empty() || levels.back().from_step != element_size || levels.back().to_step != element_size) {
    levels.push_back({1, 1, {{0, 0, element_size}}});
    return;
  }
  Level& last = levels.back();
  last.from_step = 1;
  last.to_step = 1;
  for (Segment& segment : last.segments) segment.count *= element_size;
}

void StridedCopy::Nest::CountItems() {
  for (size_t k = levels.size() - 1; k-- > 0;) {
    const Level& inner = levels[k + 1];
    int64_t items = 0;
    for (const Segment& segment : inner.segments) items += segment.count;
    levels[k].item_bytes = items * inner.item_bytes;
  }
}

void StridedCopy::FetchAhead(const void* fragment, bool written) const {
  if (bytes_ == 0) return;
  constexpr int64_t kLine = 64;
  constexpr int64_t kLines = 32;
  const Level& outer = nest_->levels.front();
  const Segment& run = nest_->levels.back().segments[0];
  const bool rows = nest_->levels.size() > 1;
  const char* at = static_cast<const char*>(fragment) + (written ? to_offset() : from_offset());
  if (rows) at += written ? run.to : run.from;
  const int64_t step = written ? outer.to_step : outer.from_step;
  const int64_t lines = std::min(kLines, (run.count + kLine - 1) / kLine);
  const int64_t count = rows ? std::min(outer.segments[0].count, std::max<int64_t>(1, kLines / lines)) : 1;
  for (int64_t i = 0; i < count; ++i, at += step) {
    for (int64_t line = 0; line < lines; ++line) {
      written ? __builtin_prefetch(at + line * kLine, 1) : __builtin_prefetch(at + line * kLine, 0);
    }
  }
}

// `count` items of a level, the first of them at (from, to).
void StridedCopy::Nest::RunSegment(size_t level, const char* from, char* to, int64_t count, CopyMode mode) const {
  if (level + 1 == levels.size()) {
    host::CopyRows(from, to, 1, count, 0, 0, mode);
    return;
  }
  const Level& loop = levels[level];
  const Level& inner = levels[level + 1];
  if (level + 2 == levels.size()) {
    // Column by column is quickest while a block of rows stays in the nearest cache.
    const int64_t block = inner.segments.size() == 1 ? count : RowsPerBlock(inner.segments.size());
    for (int64_t row = 0; row < count; row += block) {
      for (const Segment& run : inner.segments) {
        host::CopyRows(from + run.from, to + run.to, std::min(block, count - row), run.count, loop.from_step,
                       loop.to_step, mode);
      }
      from += block * loop.from_step;
      to += block * loop.to_step;
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    for (const Segment& segment : inner.segments) {
      RunSegment(level + 1, from + segment.from, to + segment.to, segment.count, mode);
    }
    from += loop.from_step;
    to += loop.to_step;
  }
}

// Bytes [begin, end) of those that one pass over the segments of `level` copies; these start at (from, to).
void StridedCopy::Nest::RunBytes(size_t level, const char* from, char* to, int64_t begin, int64_t end,
                                 CopyMode mode) const {
  const Level& loop = levels[level];
  const int64_t item = loop.item_bytes;
  for (const Segment& segment : loop.segments) {
    const int64_t bytes = segment.count * item;
    const int64_t low = std::max<int64_t>(begin, 0);
    const int64_t high = std::min(end, bytes);
    if (low < high) {
      const auto part = [&](int64_t index, int64_t first, int64_t last) {
        RunBytes(level + 1, from + segment.from + index * loop.from_step, to + segment.to + index * loop.to_step, first,
                 last, mode);
      };
      // A part of one item, whole items, a part of another.
      const int64_t whole = (low + item - 1) / item;
      const int64_t past = high / item;
      if (whole > past) {
        part(past, low - past * item, high - past * item);
      } else {
        if (low < whole * item) part(whole - 1, low - (whole - 1) * item, item);
        if (whole < past) {
          RunSegment(level, from + segment.from + whole * loop.from_step, to + segment.to + whole * loop.to_step,
                     past - whole, mode);
        }
        if (past * item < high) part(past, 0, high - past * item);
      }
    }
    begin -= bytes;
    end -= bytes;
    if (end <= 0) return;
  }
}

void StridedCopy::VisitBoxes(absl::FunctionRef<void(const CopyBox&)> visit) const {
  if (bytes_ == 0) return;
  // One segment of every level at a time, like the digits of a number.
  const auto& levels = nest_->levels;
  std::vector<size_t> chosen(levels.size(), 0);
  for (;;) {
    CopyBox box;
    box.from = nest_->from_offset;
    box.to = nest_->to_offset;
    for (size_t k = 0; k < levels.size(); ++k) {
      const Segment& segment = levels[k].segments[chosen[k]];
      box.from += segment.from;
      box.to += segment.to;
      if (k + 1 == levels.size()) {
        box.run = segment.count;
      } else if (segment.count > 1) {
        box.loops.push_back({segment.count, levels[k].from_step, levels[k].to_step});
      }
    }
    visit(box);
    size_t k = levels.size();
    while (k-- > 0 && ++chosen[k] == levels[k].segments.size()) chosen[k] = 0;
    if (k > levels.size()) return;
  }
}

int64_t StridedCopy::shortest_run() const {
  if (bytes_ == 0) return 0;
  int64_t shortest = std::numeric_limits<int64_t>::max();
  for (const Segment& run : nest_->levels.back().segments) shortest = std::min(shortest, run.count);
  return shortest;
}

void StridedCopy::Run(const void* from, void* to, CopyMode mode) const {
  if (bytes_ == 0) return;
  const char* source = static_cast<const char*>(from) + nest_->from_offset;
  char* destination = static_cast<char*>(to) + nest_->to_offset;
  for (const Segment& segment : nest_->levels.front().segments) {
    nest_->RunSegment(0, source + segment.from, destination + segment.to, segment.count, mode);
  }
  if (mode == CopyMode::kStreaming) host::FinishStreaming();
}

void StridedCopy::RunBytes(const void* from, void* to, int64_t begin, int64_t end, CopyMode mode) const {
  if (begin >= end) return;
  if (begin == 0 && end == bytes_) return Run(from, to, mode);
  nest_->RunBytes(0, static_cast<const char*>(from) + nest_->from_offset, static_cast<char*>(to) + nest_->to_offset,
                  begin, end, mode);
  if (mode == CopyMode::kStreaming) host::FinishStreaming();
}

void StridedCopy::RunPart(const void* from, void* to, int64_t part, int64_t parts, CopyMode mode) const {
  if (bytes_ == 0) return;
  // Where part k starts; a cut inside a contiguous run falls on a cache line of the run.
  const auto cut = [&](int64_t k) {
    if (k == 0 || k == parts) return k == 0 ? 0 : nest_->outer_count;
    const int64_t at = nest_->outer_count / parts * k + nest_->outer_count % parts * k / parts;
    return nest_->levels.size() == 1 ? at / 64 * 64 : at;
  };
  const int64_t begin = cut(part);
  const int64_t end = cut(part + 1);
  const Level& outer = nest_->levels.front();
  const char* source = static_cast<const char*>(from) + nest_->from_offset;
  char* destination = static_cast<char*>(to) + nest_->to_offset;
  int64_t first = 0;  // items before the segment
  for (const Segment& segment : outer.segments) {
    const int64_t low = std::max(begin - first, int64_t{0});
    const int64_t high = std::min(end - first, segment.count);
    if (low < high) {
      nest_->RunSegment(0, source + segment.from + low * outer.from_step,
                        destination + segment.to + low * outer.to_step, high - low, mode);
    }
    first += segment.count;
  }
  if (mode == CopyMode::kStreaming) host::FinishStreaming();
}

}  // namespace reshard
