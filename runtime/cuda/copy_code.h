// The copy kernel. A block processes one chunk in two phases, with a barrier for its threads in between; only
// transposed entries have something to do in the second.
//
// What a thread does per 16 bytes has to stay below about a hundred integer operations, or a current GPU is no longer
// limited by its memory: so places come from multiplications with precomputed numbers, not from divisions.
#ifndef RESHARD_RUNTIME_CUDA_COPY_CODE_H_
#define RESHARD_RUNTIME_CUDA_COPY_CODE_H_

#include <cstdint>

#include "runtime/cuda/kernel_code.h"

namespace reshard::cuda {

// Elements in a row and in a column of the tile that a block transposes. Rows are whole cache lines where a tile of
// 16 KiB allows it.
RESHARD_KERNEL_CODE constexpr uint32_t TileSide(uint32_t element_size) {
  return element_size == 1 ? 128 : element_size <= 4 ? 64 : 32;
}

// Bytes from one row of a tile to the next in shared memory: a column is read from as many banks as it has elements.
RESHARD_KERNEL_CODE constexpr uint32_t TilePitch(uint32_t element_size) {
  return TileSide(element_size) * element_size + (element_size < 4 ? 4 : element_size);
}

// Shared memory of a block: the largest tile.
inline constexpr uint32_t kTileBytes = 32 * (32 * 16 + 16);
static_assert(TileSide(1) * TilePitch(1) <= kTileBytes && TileSide(2) * TilePitch(2) <= kTileBytes &&
              TileSide(4) * TilePitch(4) <= kTileBytes && TileSide(8) * TilePitch(8) <= kTileBytes &&
              TileSide(16) * TilePitch(16) <= kTileBytes);

struct CopyPlace {
  int64_t from;
  int64_t to;
};

// Takes the digit of one loop off the number of a row.
RESHARD_KERNEL_CODE void TakeDigit(const CopyEntry::Loop& loop, uint32_t* row, CopyPlace* place) {
  const uint32_t outer = loop.by_count.Quotient(*row);
  const auto i = static_cast<int64_t>(*row - outer * loop.count);
  place->from += i * loop.from_step;
  place->to += i * loop.to_step;
  *row = outer;
}

// Where byte `at` of an entry's runs lies. kLoops are its loops; kMaxLoops stands for three or more.
template <int kLoops>
RESHARD_KERNEL_CODE CopyPlace PlaceOf(const CopyEntry& entry, uint32_t at) {
  if constexpr (kLoops == 0) return {at, at};
  uint32_t row = entry.by_run.Quotient(at);
  const uint32_t column = at - row * entry.run;
  CopyPlace place = {column, column};
  uint32_t last = 0;
  if constexpr (kLoops == 2) {
    TakeDigit(entry.loops[last++], &row, &place);
  } else if constexpr (kLoops > 2) {
    RESHARD_UNROLL_BY(1)  // which keeps registers free for loads
    while (last + 1u < entry.loop_count) TakeDigit(entry.loops[last++], &row, &place);
  }
  place.from += static_cast<int64_t>(row) * entry.loops[last].from_step;
  place.to += static_cast<int64_t>(row) * entry.loops[last].to_step;
  return place;
}

// Vectors of a thread that are loaded before the first of them is stored: as many as 64 registers allow.
template <int kWidth, int kLoops>
inline constexpr uint32_t kVectorsAtOnce = kWidth == 16 || kLoops > 1 ? 4 : 8;

// kVectorsAtOnce vectors, the first at byte `at` of an entry's runs; of a partial batch, those before `end`.
template <int kWidth, int kLoops, bool kPartial>
RESHARD_KERNEL_CODE void CopyBatch(const CopyEntry& entry, const char* from, char* to, uint32_t at, uint32_t end,
                                   uint32_t stride) {
  Vector<kWidth> loaded[kVectorsAtOnce<kWidth, kLoops>];
  int64_t target[kVectorsAtOnce<kWidth, kLoops>];
  RESHARD_UNROLL
  for (uint32_t k = 0; k < kVectorsAtOnce<kWidth, kLoops>; ++k) {
    loaded[k] = {};
    target[k] = 0;
    if (!kPartial || at + k * stride < end) {
      const CopyPlace place = PlaceOf<kLoops>(entry, at + k * stride);
      loaded[k] = LoadAligned<Vector<kWidth>>(from + place.from);
      target[k] = place.to;
    }
  }
  RESHARD_UNROLL
  for (uint32_t k = 0; k < kVectorsAtOnce<kWidth, kLoops>; ++k) {
    if (!kPartial || at + k * stride < end) StoreAligned(to + target[k], loaded[k]);
  }
}

// Bytes [begin, end) of an entry's runs by `threads` threads, of which this is number `thread`. Neighboring threads
// take neighboring vectors.
template <int kWidth, int kLoops>
RESHARD_KERNEL_CODE void CopyVectors(const CopyEntry& entry, const char* from, char* to, uint32_t begin, uint32_t end,
                                     uint32_t thread, uint32_t threads) {
  const uint32_t stride = threads * kWidth;
  const uint32_t batch = kVectorsAtOnce<kWidth, kLoops> * stride;
  uint32_t at = begin + thread * kWidth;
  for (; at + (batch - stride) < end; at += batch) {
    CopyBatch<kWidth, kLoops, false>(entry, from, to, at, end, stride);
  }
  if (at < end) CopyBatch<kWidth, kLoops, true>(entry, from, to, at, end, stride);
}

template <int kWidth>
RESHARD_KERNEL_CODE void CopyRuns(const CopyEntry& entry, const char* from, char* to, uint32_t begin, uint32_t end,
                                  uint32_t thread, uint32_t threads) {
  if (entry.loop_count == 1) {
    CopyVectors<kWidth, 1>(entry, from, to, begin, end, thread, threads);
  } else if (entry.loop_count == 2) {
    CopyVectors<kWidth, 2>(entry, from, to, begin, end, thread, threads);
  } else {
    CopyVectors<kWidth, CopyEntry::kMaxLoops>(entry, from, to, begin, end, thread, threads);
  }
}

// A part of one contiguous run. `width` divides the distance of both sides: before and after whole vectors, single
// bytes.
template <int kWidth>
RESHARD_KERNEL_CODE void CopyContiguous(const CopyEntry& entry, const char* from, char* to, uint32_t begin,
                                        uint32_t end, uint32_t thread, uint32_t threads) {
  const uint32_t past = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to) + begin) % kWidth;
  const uint32_t head = past == 0 ? 0 : kWidth - past;
  const uint32_t body = head < end - begin ? begin + head : end;
  const uint32_t tail = end - (end - body) % kWidth;
  CopyVectors<kWidth, 0>(entry, from, to, body, tail, thread, threads);
  if (thread < body - begin) to[begin + thread] = from[begin + thread];
  if (thread < end - tail) to[tail + thread] = from[tail + thread];
}

RESHARD_KERNEL_CODE void CopyChunk(const CopyEntry& entry, const KernelBases& bases, uint32_t chunk, uint32_t thread,
                                   uint32_t threads) {
  const char* from = bases.at(entry.from_base) + entry.from;
  char* to = bases.at(entry.to_base) + entry.to;
  const uint32_t begin = chunk * entry.chunk_bytes;
  const uint32_t end = entry.bytes - begin < entry.chunk_bytes ? entry.bytes : begin + entry.chunk_bytes;
  const uint64_t from_bits = reinterpret_cast<uintptr_t>(from);
  const uint64_t to_bits = reinterpret_cast<uintptr_t>(to);
  if (entry.loop_count == 0) {
    switch (AlignmentOf(from_bits - to_bits)) {
      case 16:
        return CopyContiguous<16>(entry, from, to, begin, end, thread, threads);
      case 8:
        return CopyContiguous<8>(entry, from, to, begin, end, thread, threads);
      case 4:
        return CopyContiguous<4>(entry, from, to, begin, end, thread, threads);
      case 2:
        return CopyContiguous<2>(entry, from, to, begin, end, thread, threads);
      default:
        return CopyContiguous<1>(entry, from, to, begin, end, thread, threads);
    }
  }
  switch (AlignmentOf(from_bits | to_bits | entry.alignment)) {
    case 16:
      return CopyRuns<16>(entry, from, to, begin, end, thread, threads);
    case 8:
      return CopyRuns<8>(entry, from, to, begin, end, thread, threads);
    case 4:
      return CopyRuns<4>(entry, from, to, begin, end, thread, threads);
    case 2:
      return CopyRuns<2>(entry, from, to, begin, end, thread, threads);
    default:
      return CopyRuns<1>(entry, from, to, begin, end, thread, threads);
  }
}

// The tile that is chunk number `chunk` of a transposed entry.
struct Tile {
  const char* from;
  char* to;
  uint32_t rows;     // elements that lie side by side where they are written
  uint32_t columns;  // and where they are read
};

RESHARD_KERNEL_CODE Tile TileOf(const CopyEntry& entry, const KernelBases& bases, uint32_t chunk) {
  const uint32_t side = TileSide(entry.run);
  Tile tile = {bases.at(entry.from_base) + entry.from, bases.at(entry.to_base) + entry.to, 0, 0};
  for (uint32_t d = 0; d < entry.loop_count; ++d) {
    const CopyEntry::Loop& loop = entry.loops[d];
    const uint32_t number = chunk % loop.tiles;
    chunk /= loop.tiles;
    const uint32_t first = d < 2 ? number * side : number;
    tile.from += static_cast<int64_t>(first) * loop.from_step;
    tile.to += static_cast<int64_t>(first) * loop.to_step;
    const uint32_t rest = loop.count - first;
    if (d == 0) tile.rows = rest < side ? rest : side;
    if (d == 1) tile.columns = rest < side ? rest : side;
  }
  return tile;
}

// What a thread does in one phase: elements (row, column), (row + kRowsAtOnce, column), ... of the tile, where
// neighboring threads have neighboring columns.
template <int kSize>
struct TileShare {
  static constexpr uint32_t kSide = TileSide(kSize);
  static constexpr uint32_t kRowsAtOnce = kBlockThreads / kSide;
  static constexpr uint32_t kSteps = kSide / kRowsAtOnce;
  static constexpr uint32_t kAtOnce = kSteps < 8 ? kSteps : 8;  // loads under way
};

template <int kSize>
RESHARD_KERNEL_CODE void LoadTile(const CopyEntry& entry, const Tile& tile, uint32_t thread, char* shared) {
  using Share = TileShare<kSize>;
  const uint32_t column = thread % Share::kSide;
  if (column >= tile.columns) return;
  uint32_t row = thread / Share::kSide;
  const char* from = tile.from + static_cast<int64_t>(row) * entry.loops[0].from_step +
                     static_cast<int64_t>(column) * entry.loops[1].from_step;
  const int64_t step = static_cast<int64_t>(Share::kRowsAtOnce) * entry.loops[0].from_step;
  for (uint32_t first = 0; first < Share::kSteps; first += Share::kAtOnce) {
    Vector<kSize> loaded[Share::kAtOnce];
    RESHARD_UNROLL
    for (uint32_t k = 0; k < Share::kAtOnce; ++k, from += step) {
      loaded[k] = {};
      if (row + k * Share::kRowsAtOnce < tile.rows) loaded[k] = LoadAligned<Vector<kSize>>(from);
    }
    RESHARD_UNROLL
    for (uint32_t k = 0; k < Share::kAtOnce; ++k, row += Share::kRowsAtOnce) {
      if (row < tile.rows) StoreAligned(shared + row * TilePitch(kSize) + column * kSize, loaded[k]);
    }
  }
}

template <int kSize>
RESHARD_KERNEL_CODE void StoreTile(const CopyEntry& entry, const Tile& tile, uint32_t thread, const char* shared) {
  using Share = TileShare<kSize>;
  const uint32_t row = thread % Share::kSide;
  if (row >= tile.rows) return;
  const uint32_t first = thread / Share::kSide;
  char* to = tile.to + static_cast<int64_t>(row) * kSize + static_cast<int64_t>(first) * entry.loops[1].to_step;
  const int64_t step = static_cast<int64_t>(Share::kRowsAtOnce) * entry.loops[1].to_step;
  RESHARD_UNROLL
  for (uint32_t k = 0; k < Share::kSteps; ++k, to += step) {
    const uint32_t column = first + k * Share::kRowsAtOnce;
    if (column < tile.columns) {
      StoreAligned(to, LoadAligned<Vector<kSize>>(shared + row * TilePitch(kSize) + column * kSize));
    }
  }
}

// For addresses that the element size does not divide.
RESHARD_KERNEL_CODE void CopyTileByBytes(const CopyEntry& entry, const Tile& tile, uint32_t thread) {
  for (uint32_t i = thread; i < tile.rows * tile.columns; i += kBlockThreads) {
    const auto row = static_cast<int64_t>(i % tile.rows);
    const auto column = static_cast<int64_t>(i / tile.rows);
    const char* from = tile.from + row * entry.loops[0].from_step + column * entry.loops[1].from_step;
    char* to = tile.to + row * entry.loops[0].to_step + column * entry.loops[1].to_step;
    for (uint32_t byte = 0; byte < entry.run; ++byte) to[byte] = from[byte];
  }
}

template <bool kStores, int kSize>
RESHARD_KERNEL_CODE void TilePhase(const CopyEntry& entry, const Tile& tile, uint32_t thread, char* shared) {
  if constexpr (kStores) {
    StoreTile<kSize>(entry, tile, thread, shared);
  } else {
    LoadTile<kSize>(entry, tile, thread, shared);
  }
}

template <bool kStores>
RESHARD_KERNEL_CODE void TransposeTile(const CopyEntry& entry, const KernelBases& bases, uint32_t chunk,
                                       uint32_t thread, char* shared) {
  const Tile tile = TileOf(entry, bases, chunk);
  const uint64_t bits = reinterpret_cast<uintptr_t>(tile.from) | reinterpret_cast<uintptr_t>(tile.to);
  if (AlignmentOf(bits | entry.alignment) < entry.run) {
    if (kStores) CopyTileByBytes(entry, tile, thread);
    return;
  }
  switch (entry.run) {
    case 1:
      return TilePhase<kStores, 1>(entry, tile, thread, shared);
    case 2:
      return TilePhase<kStores, 2>(entry, tile, thread, shared);
    case 4:
      return TilePhase<kStores, 4>(entry, tile, thread, shared);
    case 8:
      return TilePhase<kStores, 8>(entry, tile, thread, shared);
    default:
      return TilePhase<kStores, 16>(entry, tile, thread, shared);
  }
}

// The first phase of a thread of block `chunk`, all of whose threads have the same `entry`, that of EntryOfChunk.
// `shared` is kTileBytes of memory that the block shares, aligned to 16 bytes.
RESHARD_KERNEL_CODE void CopyFirstPhase(const CopyEntry* entries, const uint32_t* first_chunk, uint32_t entry,
                                        const KernelBases& bases, uint32_t chunk, uint32_t thread, char* shared) {
  const CopyEntry& last = entries[entry];
  if (last.transposed) {
    TransposeTile<false>(last, bases, chunk - first_chunk[entry], thread, shared);
    return;
  }
  // Entries that share the chunk are one warp's work each; else there is one, for the whole block.
  const bool shares = last.sharing != 0;
  const uint32_t threads = shares ? kWarpThreads : kBlockThreads;
  for (uint32_t i = thread / threads; i <= last.sharing; i += kBlockThreads / threads) {
    CopyChunk(entries[entry - i], bases, shares ? 0 : chunk - first_chunk[entry], thread % threads, threads);
  }
}

RESHARD_KERNEL_CODE void CopySecondPhase(const CopyEntry* entries, const uint32_t* first_chunk, uint32_t entry,
                                         const KernelBases& bases, uint32_t chunk, uint32_t thread, char* shared) {
  if (entries[entry].transposed) {
    TransposeTile<true>(entries[entry], bases, chunk - first_chunk[entry], thread, shared);
  }
}

}  // namespace reshard::cuda

#endif  // RESHARD_RUNTIME_CUDA_COPY_CODE_H_
