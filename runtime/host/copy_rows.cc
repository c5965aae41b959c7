#include "runtime/host/copy_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
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

// A whole cache line of the destination is written without being read first.
inline void StreamLine(const char* from, char* to) {
  const auto load = [&](int64_t at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)); };
  const __m128i a = load(0);
  const __m128i b = load(16);
  const __m128i c = load(32);
  const __m128i d = load(48);
  __m128i* line = reinterpret_cast<__m128i*>(to);
  _mm_stream_si128(line, a);
  _mm_stream_si128(line + 1, b);
  _mm_stream_si128(line + 2, c);
  _mm_stream_si128(line + 3, d);
}

// kRows rows side by side, a line of each in turn: memory answers several pages at a time quicker than one after the
// other. What lies before the first and behind the last whole line of a row goes the usual way.
template <int kRows>
void StreamSideBySide(const char* from, char* to, int64_t bytes, int64_t from_step, int64_t to_step) {
  int64_t head[kRows];
  int64_t lines = bytes / kLine;
  for (int r = 0; r < kRows; ++r) {
    const auto past_line = reinterpret_cast<uintptr_t>(to + r * to_step) % static_cast<uintptr_t>(kLine);
    head[r] = past_line == 0 ? 0 : std::min(bytes, kLine - static_cast<int64_t>(past_line));
    lines = std::min(lines, (bytes - head[r]) / kLine);
  }
  for (int64_t line = 0; line < lines; ++line) {
    for (int r = 0; r < kRows; ++r) {
      const int64_t at = head[r] + line * kLine;
      StreamLine(from + r * from_step + at, to + r * to_step + at);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const char* source = from + r * from_step;
    char* row = to + r * to_step;
    const int64_t tail = head[r] + lines * kLine;
    if (head[r] > 0) std::memcpy(row, source, static_cast<size_t>(head[r]));
    if (tail < bytes) std::memcpy(row + tail, source + tail, static_cast<size_t>(bytes - tail));
  }
}

void StreamRows(const char* from, char* to, int64_t rows, int64_t bytes, int64_t from_step, int64_t to_step) {
  constexpr int kSideBySide = 4;
  constexpr int64_t kPage = 4096;
  if (bytes >= kSideBySide * kPage) {  // a long row is cut into pages, which are rows too
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t pages = bytes / kPage;
      StreamRows(from, to, pages, kPage, kPage, kPage);
      if (bytes % kPage > 0) StreamSideBySide<1>(from + pages * kPage, to + pages * kPage, bytes % kPage, 0, 0);
      from += from_step;
      to += to_step;
    }
    return;
  }
  for (; rows >= kSideBySide; rows -= kSideBySide) {
    StreamSideBySide<kSideBySide>(from, to, bytes, from_step, to_step);
    from += kSideBySide * from_step;
    to += kSideBySide * to_step;
  }
  for (; rows > 0; --rows) {
    StreamSideBySide<1>(from, to, bytes, 0, 0);
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

}  // namespace reshard::host
