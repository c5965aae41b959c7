#include "runtime/core/copy_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace reshard {
namespace {

constexpr int64_t kLine = 64;

// Rows that are far apart lie on different pages, where the processor does not fetch ahead by itself until it has seen
// a few lines: the first lines of the next row are fetched while this one is copied.
constexpr int64_t kFetchedAhead = 8 * kLine;
constexpr int64_t kShortestFetchedAhead = 2 * kLine;

inline void FetchAhead(const char* row, int64_t bytes) {
  for (int64_t at = 0; at < std::min(bytes, kFetchedAhead); at += kLine) __builtin_prefetch(row + at);
}

// A length known to the compiler becomes one or a few moves, without a call.
template <size_t kBytes>
void CopyFixedRows(const char* from, char* to, int64_t rows, int64_t from_step, int64_t to_step) {
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(to, from, kBytes);
    from += from_step;
    to += to_step;
  }
}

#if defined(__SSE2__)

// Whole cache lines of the destination are written without being read first; the ends go the usual way.
inline void StreamRow(const char* from, char* to, int64_t bytes) {
  const int64_t head = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(to) % static_cast<uintptr_t>(kLine));
  if (bytes < head + kLine) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  if (head > 0) std::memcpy(to, from, static_cast<size_t>(head));
  int64_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    const auto load = [&](int64_t offset) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at + offset));
    };
    const __m128i a = load(0);
    const __m128i b = load(16);
    const __m128i c = load(32);
    const __m128i d = load(48);
    __m128i* line = reinterpret_cast<__m128i*>(to + at);
    _mm_stream_si128(line, a);
    _mm_stream_si128(line + 1, b);
    _mm_stream_si128(line + 2, c);
    _mm_stream_si128(line + 3, d);
  }
  if (at < bytes) std::memcpy(to + at, from + at, static_cast<size_t>(bytes - at));
}

void StreamRows(const char* from, char* to, int64_t rows, int64_t bytes, int64_t from_step, int64_t to_step) {
  for (int64_t i = 0; i < rows; ++i) {
    if (bytes >= kShortestFetchedAhead && i + 1 < rows) FetchAhead(from + from_step, bytes);
    StreamRow(from, to, bytes);
    from += from_step;
    to += to_step;
  }
}

#endif

}  // namespace

void CopyRows(const char* from, char* to, int64_t rows, int64_t bytes, int64_t from_step, int64_t to_step,
              CopyMode mode) {
#if defined(__SSE2__)
  if (mode == CopyMode::kStreaming && bytes >= kLine) return StreamRows(from, to, rows, bytes, from_step, to_step);
#else
  (void)mode;
#endif
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
    case 32:
      return CopyFixedRows<32>(from, to, rows, from_step, to_step);
    case 64:
      return CopyFixedRows<64>(from, to, rows, from_step, to_step);
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

void FinishStreaming() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace reshard
