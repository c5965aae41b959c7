#include "runtime/cuda/copy_table.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "runtime/cuda/copy_code.h"
#include "runtime/host/reduce.h"

namespace reshard::cuda {
namespace {

// A block's share of a large copy. For a small copy the shares are smaller, so that all processors of a GPU have some.
constexpr int64_t kMostChunkBytes = 32 << 10;
constexpr int64_t kLeastChunkBytes = 4 << 10;
constexpr int64_t kEnoughChunks = 2048;
// Work for one warp, of which a block does several at a time.
constexpr int64_t kWarpBytes = 2 << 10;
constexpr int kMostSharing = kBlockThreads / kWarpThreads;
// Rows that are worth an entry of their own.
constexpr int64_t kLongRun = 64 << 10;
// Tiles of fewer rows or columns are mostly empty.
constexpr int64_t kLeastTileRows = 8;

// A CopyBox with its loops innermost first, all of them forwards where they write.
struct Box {
  int64_t from = 0;
  int64_t to = 0;
  absl::InlinedVector<CopyBox::Loop, 6> loops;
  int64_t run = 0;

  int64_t bytes() const {
    int64_t bytes = run;
    for (const CopyBox::Loop& loop : loops) bytes *= loop.count;
    return bytes;
  }
  uint32_t alignment() const {
    auto bits = static_cast<uint64_t>(run);
    for (const CopyBox::Loop& loop : loops) bits |= static_cast<uint64_t>(loop.from_step | loop.to_step);
    return AlignmentOf(bits);
  }
  // Items [first, first + count) of a loop; the loop is dropped if that is one item.
  Box Part(size_t loop, int64_t first, int64_t count) const {
    Box part = *this;
    part.from += first * loops[loop].from_step;
    part.to += first * loops[loop].to_step;
    part.loops[loop].count = count;
    if (count == 1) part.loops.erase(part.loops.begin() + static_cast<std::ptrdiff_t>(loop));
    return part;
  }
};

// The order of the elements is free, so loops are sorted by how they write: what is written together lies together.
// That also brings loops side by side that are one longer loop, or a longer run, on both sides.
Box Normalized(const CopyBox& box, const CopyJob& job) {
  Box out{box.from + job.from_offset, box.to + job.to_offset, {}, box.run};
  for (CopyBox::Loop loop : box.loops) {
    if (loop.to_step < 0) {
      out.from += (loop.count - 1) * loop.from_step;
      out.to += (loop.count - 1) * loop.to_step;
      loop.from_step = -loop.from_step;
      loop.to_step = -loop.to_step;
    }
    out.loops.push_back(loop);
  }
  std::sort(out.loops.begin(), out.loops.end(),
            [](const CopyBox::Loop& a, const CopyBox::Loop& b) { return a.to_step < b.to_step; });
  while (!out.loops.empty() && out.loops[0].from_step == out.run && out.loops[0].to_step == out.run) {
    out.run *= out.loops[0].count;
    out.loops.erase(out.loops.begin());
  }
  for (size_t k = 0; k + 1 < out.loops.size();) {
    CopyBox::Loop& inner = out.loops[k];
    const CopyBox::Loop& outer = out.loops[k + 1];
    if (outer.from_step == inner.count * inner.from_step && outer.to_step == inner.count * inner.to_step) {
      inner.count *= outer.count;
      out.loops.erase(out.loops.begin() + static_cast<std::ptrdiff_t>(k + 1));
    } else {
      ++k;
    }
  }
  return out;
}

// The loop along which a transpose reads, or 0 if the box is not a transpose: elements lie side by side in loop 0 where
// they are written and in another loop where they are read.
size_t TransposedLoop(const Box& box) {
  if (box.run > 16 || (box.run & (box.run - 1)) != 0 || box.loops.size() < 2) return 0;
  if (box.loops[0].to_step != box.run || box.loops[0].count < kLeastTileRows) return 0;
  for (size_t k = 1; k < box.loops.size(); ++k) {
    const CopyBox::Loop& loop = box.loops[k];
    if ((loop.from_step == box.run || loop.from_step == -box.run) && loop.count >= kLeastTileRows) return k;
  }
  return 0;
}

class CopyTableMaker {
 public:
  explicit CopyTableMaker(int64_t entry_limit) : entry_limit_(entry_limit) {}

  void Add(const CopyJob& job) {
    table_.bases = std::max({table_.bases, job.from_base + 1, job.to_base + 1});
    table_.bytes += job.copy->bytes();
    job.copy->VisitBoxes([&](const CopyBox& box) { AddBox(Normalized(box, job), job); });
  }

  CopyTable Finish() {
    // Entries for a warp go together, so that they can share blocks.
    const auto is_small = [](const CopyEntry& entry) { return !entry.transposed && entry.bytes <= kWarpBytes; };
    std::stable_partition(table_.entries.begin(), table_.entries.end(),
                          [&](const CopyEntry& entry) { return !is_small(entry); });
    int64_t chunk_bytes = kMostChunkBytes;
    while (chunk_bytes > kLeastChunkBytes && table_.bytes / chunk_bytes < kEnoughChunks) chunk_bytes /= 2;
    uint32_t chunks = 0;
    int sharing = 0;
    for (size_t i = 0; i < table_.entries.size(); ++i) {
      CopyEntry& entry = table_.entries[i];
      entry.chunk_bytes = static_cast<uint32_t>(chunk_bytes);
      table_.first_chunk.push_back(chunks);
      if (!is_small(entry)) {
        chunks += ChunksOf(entry);
        continue;
      }
      // The last one of those that share a chunk counts it.
      entry.sharing = static_cast<uint8_t>(sharing++);
      if (sharing == kMostSharing || i + 1 == table_.entries.size()) {
        ++chunks;
        sharing = 0;
      }
    }
    table_.first_chunk.push_back(chunks);
    return std::move(table_);
  }

 private:
  // Cuts a box until it is what an entry can be.
  void AddBox(const Box& box, const CopyJob& job) {
    const int64_t bytes = box.bytes();
    if (bytes > entry_limit_ && box.loops.empty()) {
      for (int64_t at = 0; at < bytes; at += entry_limit_) {
        AddEntry({box.from + at, box.to + at, {}, std::min(entry_limit_, bytes - at)}, job);
      }
    } else if (bytes > entry_limit_) {
      const size_t outer = box.loops.size() - 1;
      const int64_t count = box.loops[outer].count;
      const int64_t part = std::max<int64_t>(1, entry_limit_ / (bytes / count));
      for (int64_t i = 0; i < count; i += part) AddBox(box.Part(outer, i, std::min(part, count - i)), job);
    } else if (box.loops.size() > CopyEntry::kMaxLoops) {
      const auto least =
          std::min_element(box.loops.begin(), box.loops.end(),
                           [](const CopyBox::Loop& a, const CopyBox::Loop& b) { return a.count < b.count; });
      const auto loop = static_cast<size_t>(least - box.loops.begin());
      for (int64_t i = 0; i < least->count; ++i) AddBox(box.Part(loop, i, 1), job);
    } else if (!box.loops.empty() && box.run >= kLongRun && box.alignment() < 16) {
      // One contiguous run can be copied in wide vectors wherever it starts; rows of one entry are all copied alike.
      const size_t outer = box.loops.size() - 1;
      for (int64_t i = 0; i < box.loops[outer].count; ++i) AddBox(box.Part(outer, i, 1), job);
    } else {
      AddEntry(box, job);
    }
  }

  void AddEntry(Box box, const CopyJob& job) {
    CopyEntry entry{};
    entry.transposed = 0;
    if (const size_t loop = TransposedLoop(box); loop != 0) {
      std::swap(box.loops[1], box.loops[loop]);
      entry.transposed = 1;
    }
    entry.from = box.from;
    entry.to = box.to;
    entry.from_base = static_cast<uint32_t>(job.from_base);
    entry.to_base = static_cast<uint32_t>(job.to_base);
    entry.bytes = static_cast<uint32_t>(box.bytes());
    entry.run = static_cast<uint32_t>(box.run);
    entry.by_run = Divider::Of(entry.run);
    entry.alignment = static_cast<uint8_t>(box.alignment());
    entry.loop_count = static_cast<uint8_t>(box.loops.size());
    for (size_t k = 0; k < box.loops.size(); ++k) {
      const CopyBox::Loop& loop = box.loops[k];
      const auto count = static_cast<uint32_t>(loop.count);
      const uint32_t side = entry.transposed && k < 2 ? TileSide(entry.run) : 1;
      entry.loops[k] = {loop.from_step, loop.to_step, count, Divider::Of(count), (count - 1) / side + 1};
    }
    table_.entries.push_back(entry);
  }

  static uint32_t ChunksOf(const CopyEntry& entry) {
    if (!entry.transposed) return (entry.bytes - 1) / entry.chunk_bytes + 1;
    uint32_t tiles = 1;
    for (int k = 0; k < entry.loop_count; ++k) tiles *= entry.loops[k].tiles;
    return tiles;
  }

  const int64_t entry_limit_;
  CopyTable table_;
};

KernelReduceOp ForKernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return KernelReduceOp::kSum;
    case ReduceOp::kAvg:
      return KernelReduceOp::kAvg;
    case ReduceOp::kMin:
      return KernelReduceOp::kMin;
    case ReduceOp::kMax:
      return KernelReduceOp::kMax;
    case ReduceOp::kProd:
      return KernelReduceOp::kProd;
  }
  return KernelReduceOp::kSum;
}

}  // namespace

CopyTable MakeCopyTable(absl::Span<const CopyJob> jobs, int64_t entry_limit) {
  CopyTableMaker maker(entry_limit);
  for (const CopyJob& job : jobs) maker.Add(job);
  return maker.Finish();
}

ReduceTable MakeReduceTable(absl::Span<const ReduceJob> jobs) {
  assert(std::all_of(jobs.begin(), jobs.end(),
                     [](const ReduceJob& job) { return host::CheckReduction(job.op, job.dtype).ok(); }));
  ReduceTable table;
  int64_t bytes = 0;
  for (const ReduceJob& job : jobs) bytes += job.elements * SizeOf(job.dtype);
  int64_t chunk_bytes = kMostChunkBytes;
  while (chunk_bytes > kLeastChunkBytes && bytes / chunk_bytes < kEnoughChunks) chunk_bytes /= 2;
  uint32_t chunks = 0;
  for (const ReduceJob& job : jobs) {
    table.bases = std::max({table.bases, job.in_base + 1, job.out_base + 1});
    if (job.elements == 0) continue;
    const int64_t chunk_elements = chunk_bytes / SizeOf(job.dtype);
    ReduceEntry entry{};
    entry.in = job.in_offset;
    entry.out = job.out_offset;
    entry.pitch = job.pitch;
    entry.elements = job.elements;
    entry.in_base = static_cast<uint32_t>(job.in_base);
    entry.out_base = static_cast<uint32_t>(job.out_base);
    entry.members = static_cast<uint32_t>(job.members);
    entry.chunk_elements = static_cast<uint32_t>(chunk_elements);
    entry.dtype = static_cast<uint32_t>(job.dtype);
    entry.op = ForKernel(job.op);
    table.entries.push_back(entry);
    table.first_chunk.push_back(chunks);
    chunks += static_cast<uint32_t>((job.elements - 1) / chunk_elements + 1);
  }
  table.first_chunk.push_back(chunks);
  return table;
}

}  // namespace reshard::cuda
