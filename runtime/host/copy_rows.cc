#include "runtime/host/copy_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "runtime/host/stream_rows.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace reshard::host {
namespace {

constexpr int64_t kLine = 64;

// Rows that are far apart lie on different pages, where the processor does not fetch ahead by itself until it has seen
// a few lines: the first lines of the next row are fetched while this one is copied.
constexpr int64_t kFetchedAhead = 8 * kLine;
constexpr int64_t kShortestFetchedAhead = 2 * kLine;

inline void FetchAhead(const char* row, int64_t bytes) {
  for (int64_t at = 0; at < std::min(bytes, kFetchedAhead); at += kLine) __builtin_prefetch(row + at);
}

#if defined(__x86_64__)
// Rows of kHalves times 32 bytes. Every x86-64 has vectors of 16 bytes; with those of 32 a line is written in two
// stores instead of four.
template <int kHalves>
__attribute__((target("avx2"))) void CopyHalfLinesAvx2(const char* from, char* to, int64_t rows, int64_t from_step,
                                                       int64_t to_step) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int half = 0; half < kHalves; ++half) {
      const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from) + half);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to) + half, x);
    }
    from += from_step;
    to += to_step;
  }
}
#endif

// A length known to the compiler becomes one or a few moves, without a call.
template <size_t kBytes>
void CopyFixedRows(const char* from, char* to, int64_t rows, int64_t from_step, int64_t to_step) {
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(to, from, kBytes);
    from += from_step;
    to += to_step;
  }
}

}  // namespace

void CopyRows(const char* from, char* to, int64_t rows, int64_t bytes, int64_t from_step, int64_t to_step,
              CopyMode mode) {
  if (mode == CopyMode::kStreaming && bytes >= kLine) return StreamRows(from, to, rows, bytes, from_step, to_step);
  switch (bytes) {
    case 1:
      return CopyFixedRows<1>(from, to, rows, from_step, to_step);
    case 2:
      return CopyFixedRows<2>(from, to, rows, from_step, to_step);
    case 4:
      return CopyFixedRows<4>(from, to, rows, from_step, to_step);
    case 8:
      return CopyFixedRows<8>(from, to, rows, from_step, to_step);
    case 16:
      return CopyFixedRows<16>(from, to, rows, from_step, to_step);
#if defined(__x86_64__)
    case 32:
      if (WidestVectors() == Vectors::k32Bytes) return CopyHalfLinesAvx2<1>(from, to, rows, from_step, to_step);
      return CopyFixedRows<32>(from, to, rows, from_step, to_step);
    case 64:
      if (WidestVectors() == Vectors::k32Bytes) return CopyHalfLinesAvx2<2>(from, to, rows, from_step, to_step);
      return CopyFixedRows<64>(from, to, rows, from_step, to_step);
#endif
    default:
      break;
  }
  for (int64_t i = 0; i < rows; ++i) {
    if (bytes >= kShortestFetchedAhead && i + 1 < rows) FetchAhead(from + from_step, bytes);
    std::memcpy(to, from, static_cast<size_t>(bytes));
    from += from_step;
    to += to_step;
  }
}

}  // namespace reshard::host
