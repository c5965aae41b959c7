#include "runtime/host/copy_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

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

#if defined(__x86_64__)

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

// Asks memory for the lines of the rows in the order in which they are copied, kAhead of them before their turn and
// across the ends of rows. Not side by side, several rows or pages at a time, which is quicker where addresses are odd
// and less than half as quick where they are a power of two apart: streams whose addresses share their low 12 bits are
// taken for one another (measured on AMD Zen 3; docs/figures.md).
class LinesAhead {
 public:
  LinesAhead(const char* row, int64_t rows, int64_t bytes, int64_t step)
      : row_(row), rows_(rows), bytes_(bytes), step_(step) {
    for (int64_t line = 0; line < kAhead && rows_ > 0; ++line) Next();
  }

  // To be called once a line.
  void Next() {
    if (rows_ == 0) return;
    __builtin_prefetch(row_ + at_);
    at_ += kLine;
    if (at_ < bytes_) return;
    at_ = 0;
    row_ += step_;
    --rows_;
  }

 private:
  static constexpr int64_t kAhead = 16;  // 16 to 32 measured alike on AMD Zen 3, on an Intel Xeon 16 is 2 % quicker
  const char* row_;
  int64_t rows_;  // from row_ on
  int64_t bytes_;
  int64_t step_;
  int64_t at_ = 0;  // of the next line in its row
};

// Rows of whole lines, in memory of whole lines.
__attribute__((target("avx2"))) void StreamWholeLinesAvx2(const char* from, char* to, int64_t rows, int64_t bytes,
                                                          int64_t from_step, int64_t to_step) {
  LinesAhead ahead(from, rows, bytes, from_step);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t at = 0; at < bytes; at += kLine) {
      ahead.Next();
      const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
      const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at) + 1);
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), a);
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at) + 1, b);
    }
    from += from_step;
    to += to_step;
  }
}

// What lies before the first and behind the last whole line of a row goes the usual way.
void StreamEachRow(const char* from, char* to, int64_t rows, int64_t bytes, int64_t from_step, int64_t to_step) {
  LinesAhead ahead(from, rows, bytes, from_step);
  for (int64_t i = 0; i < rows; ++i) {
    const auto past_line = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % static_cast<uintptr_t>(kLine));
    const int64_t head = past_line == 0 ? 0 : std::min(bytes, kLine - past_line);
    if (head > 0) std::memcpy(to, from, static_cast<size_t>(head));
    int64_t at = head;
    for (; at + kLine <= bytes; at += kLine) {
      ahead.Next();
      StreamLine(from + at, to + at);
    }
    if (at < bytes) std::memcpy(to + at, from + at, static_cast<size_t>(bytes - at));
    // A row that is not aligned has a line more than are streamed.
    for (int64_t line = (at - head) / kLine * kLine; line < bytes; line += kLine) ahead.Next();
    from += from_step;
    to += to_step;
  }
}

// Rows that follow each other in the destination and end inside of its lines: the lines are put together in the nearest
// cache and streamed whole.
void StreamJoinedRows(const char* from, char* to, int64_t rows, int64_t bytes, int64_t from_step) {
  constexpr int64_t kStaged = 4096;
  constexpr int64_t kRowsAhead = 2;
  alignas(kLine) char staged[kStaged];
  // staged[begin, end) is what is to go to out + begin, and `out` is the start of a line.
  int64_t begin = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % static_cast<uintptr_t>(kLine));
  int64_t end = begin;
  char* out = to - begin;
  const auto flush = [&] {
    int64_t at = 0;
    if (begin > 0) {
      at = std::min(kLine, end);
      std::memcpy(out + begin, staged + begin, static_cast<size_t>(at - begin));
    }
    for (; at + kLine <= end; at += kLine) StreamLine(staged + at, out + at);
    if (at < end) std::memcpy(out + at, staged + at, static_cast<size_t>(end - at));
    out += end;
    begin = end = 0;
  };
  for (int64_t i = 0; i < rows; ++i, from += from_step) {
    if (i + kRowsAhead < rows) {
      const char* const next = from + kRowsAhead * from_step;
      for (int64_t at = 0; at < bytes + kLine; at += kLine) __builtin_prefetch(next + std::min(at, bytes - 1));
    }
    for (int64_t at = 0; at < bytes;) {
      const int64_t piece = std::min(bytes - at, kStaged - end);
      std::memcpy(staged + end, from + at, static_cast<size_t>(piece));
      at += piece;
      end += piece;
      if (end == kStaged) flush();
    }
  }
  flush();
}

void StreamRows(const char* from, char* to, int64_t rows, int64_t bytes, int64_t from_step, int64_t to_step) {
  // Measured: from here on a row's own first and last line no longer matter.
  constexpr int64_t kLongRow = 4096;
  const bool whole_lines = (reinterpret_cast<uintptr_t>(to) | static_cast<uintptr_t>(bytes)) % kLine == 0;
  if (rows > 1 && to_step == bytes && !whole_lines && bytes < kLongRow) {
    return StreamJoinedRows(from, to, rows, bytes, from_step);
  }
  if (__builtin_cpu_supports("avx2") &&
      (reinterpret_cast<uintptr_t>(to) | static_cast<uintptr_t>(bytes | to_step)) % kLine == 0) {
    return StreamWholeLinesAvx2(from, to, rows, bytes, from_step, to_step);
  }
  StreamEachRow(from, to, rows, bytes, from_step, to_step);
}

#endif

}  // namespace

void CopyRows(const char* from, char* to, int64_t rows, int64_t bytes, int64_t from_step, int64_t to_step,
              CopyMode mode) {
#if defined(__x86_64__)
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
#if defined(__x86_64__)
    case 32:
      if (__builtin_cpu_supports("avx2")) return CopyHalfLinesAvx2<1>(from, to, rows, from_step, to_step);
      return CopyFixedRows<32>(from, to, rows, from_step, to_step);
    case 64:
      if (__builtin_cpu_supports("avx2")) return CopyHalfLinesAvx2<2>(from, to, rows, from_step, to_step);
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

void FinishStreaming() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace reshard::host
