#include "runtime/host/stream_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace reshard::host {

#if defined(__x86_64__)
namespace {

constexpr int64_t kLine = 64;

// Bytes between the start of a line and the address.
int64_t PastLine(const char* address) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(kLine));
}

// Prefetches the lines of the rows in the order in which they are copied, kAhead of them before their turn and across
// the ends of rows, into the second cache, where a core can wait for more lines at a time than in the first. The first
// line of a row is requested twice as early, since rows on pages of their own have these looked up, too.
// Not side by side, several rows or pages at a time, which is faster where addresses are odd and less than half as fast
// where they are a power of two apart: streams whose addresses share their low 12 bits are taken for one another
// (measured on AMD Zen 3; docs/figures.md).
class LinesAhead {
 public:
  LinesAhead(const char* row, int64_t rows, int64_t bytes, int64_t step)
      : row_(row),
        rows_(rows),
        bytes_(bytes),
        step_(step),
        pages_ahead_(std::max<int64_t>(1, kPagesAhead * kLine / bytes)),
        line_(StartOf(row)) {
    for (int64_t line = 0; line < kAhead && rows_ > 0; ++line) Next();
  }

  // Number of lines that a row of `bytes` bytes lies on.
  static int64_t LinesOf(const char* row, int64_t bytes) { return (PastLine(row) + bytes + kLine - 1) / kLine; }

  // Call it LinesOf(row) times per row.
  void Next() {
    if (rows_ == 0) return;
    constexpr int kReading = 0;
    constexpr int kSecondCache = 2;
    __builtin_prefetch(line_, kReading, kSecondCache);
    line_ += kLine;
    if (line_ < row_ + bytes_) return;
    row_ += step_;
    line_ = StartOf(row_);
    --rows_;
    if (rows_ > pages_ahead_) __builtin_prefetch(line_ + pages_ahead_ * step_, kReading, kSecondCache);
  }

 private:
  static constexpr int64_t kAhead = 96;        // 64 to 512 measured alike on an Intel Xeon, 16 a third slower
  static constexpr int64_t kPagesAhead = 192;  // lines; 192 to 384 measured alike, without it up to a fifth slower

  static const char* StartOf(const char* row) { return row - PastLine(row); }

  const char* row_;
  int64_t rows_;  // from row_ on
  int64_t bytes_;
  int64_t step_;
  int64_t pages_ahead_;  // rows
  const char* line_;
};

void StreamLine(const char* from, char* to) {
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

__attribute__((target("avx2"))) void StreamLineAvx2(const char* from, char* to) {
  const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from) + 1);
  __m256i* line = reinterpret_cast<__m256i*>(to);
  _mm256_stream_si256(line, a);
  _mm256_stream_si256(line + 1, b);
}

// The functions below are compiled twice: inside a function for AVX2 they are compiled for AVX2. stream(from, to)
// copies a whole line.
#define RESHARD_ALWAYS_INLINE __attribute__((always_inline)) inline

// What lies before the first and behind the last whole line of a row goes the usual way: these lines are read before
// they are written, so memory is asked for them some rows ahead.
template <typename Stream>
RESHARD_ALWAYS_INLINE void EachRow(const char* from, char* to, int64_t rows, int64_t bytes, int64_t from_step,
                                   int64_t to_step, const Stream& stream) {
  constexpr int64_t kRowsAhead = 4;
  const bool whole_lines = (PastLine(to) | (bytes | to_step) % kLine) == 0;
  LinesAhead ahead(from, rows, bytes, from_step);
  for (int64_t i = 0; i < rows; ++i) {
    int64_t head = 0;
    if (!whole_lines) {
      if (i + kRowsAhead < rows) {
        __builtin_prefetch(to + kRowsAhead * to_step, 1);
        __builtin_prefetch(to + kRowsAhead * to_step + bytes - 1, 1);
      }
      const int64_t past_line = PastLine(to);
      head = past_line == 0 ? 0 : std::min(bytes, kLine - past_line);
      if (head > 0) std::memcpy(to, from, static_cast<size_t>(head));
    }
    int64_t at = head;
    for (; at + kLine <= bytes; at += kLine) {
      ahead.Next();
      stream(from + at, to + at);
    }
    if (at < bytes) std::memcpy(to + at, from + at, static_cast<size_t>(bytes - at));
    for (int64_t line = (at - head) / kLine; line < LinesAhead::LinesOf(from, bytes); ++line) ahead.Next();
    from += from_step;
    to += to_step;
  }
}

// Rows that follow each other in the destination and end inside of its lines: a line in which one row ends and the next
// begins is put together aside, and streamed whole like the others.
template <typename Stream>
RESHARD_ALWAYS_INLINE void JoinedRows(const char* from, char* to, int64_t rows, int64_t bytes, int64_t from_step,
                                      const Stream& stream) {
  alignas(kLine) char joined[kLine];
  LinesAhead ahead(from, rows, bytes, from_step);
  // joined[begin, end) is what is to go to to + begin, and `to` is the start of a line.
  int64_t begin = PastLine(to);
  int64_t end = begin;
  to -= begin;
  for (int64_t i = 0; i < rows; ++i, from += from_step) {
    const int64_t head = kLine - end;
    std::memcpy(joined + end, from, static_cast<size_t>(head));
    if (begin == 0) {
      stream(joined, to);
    } else {
      std::memcpy(to + begin, joined + begin, static_cast<size_t>(kLine - begin));
      begin = 0;
    }
    to += kLine;
    int64_t at = head;
    for (; at + kLine <= bytes; at += kLine, to += kLine) {
      ahead.Next();
      stream(from + at, to);
    }
    end = bytes - at;
    std::memcpy(joined, from + at, static_cast<size_t>(end));
    for (int64_t line = (at - head) / kLine; line < LinesAhead::LinesOf(from, bytes); ++line) ahead.Next();
  }
  std::memcpy(to, joined, static_cast<size_t>(end));
}

template <typename Stream>
RESHARD_ALWAYS_INLINE void Rows(const char* from, char* to, int64_t rows, int64_t bytes, int64_t from_step,
                                int64_t to_step, const Stream& stream) {
  if (rows > 1 && to_step == bytes && (PastLine(to) | bytes % kLine) != 0) {
    return JoinedRows(from, to, rows, bytes, from_step, stream);
  }
  EachRow(from, to, rows, bytes, from_step, to_step, stream);
}

__attribute__((target("avx2"))) void RowsAvx2(const char* from, char* to, int64_t rows, int64_t bytes,
                                              int64_t from_step, int64_t to_step) {
  Rows(
      from, to, rows, bytes, from_step, to_step,
      [](const char* line, char* out) __attribute__((target("avx2"))) { StreamLineAvx2(line, out); });
}

template <typename Stream>
RESHARD_ALWAYS_INLINE void Lines(const char* from, char* to, int64_t bytes, const Stream& stream) {
  for (int64_t at = 0; at < bytes; at += kLine) stream(from + at, to + at);
}

__attribute__((target("avx2"))) void LinesAvx2(const char* from, char* to, int64_t bytes) {
  Lines(
      from, to, bytes, [](const char* line, char* out) __attribute__((target("avx2"))) { StreamLineAvx2(line, out); });
}

}  // namespace

Vectors WidestVectors() { return __builtin_cpu_supports("avx2") ? Vectors::k32Bytes : Vectors::k16Bytes; }

void StreamRows(const char* from, char* to, int64_t rows, int64_t bytes, int64_t from_step, int64_t to_step,
                Vectors vectors) {
  if (vectors == Vectors::k32Bytes) return RowsAvx2(from, to, rows, bytes, from_step, to_step);
  Rows(from, to, rows, bytes, from_step, to_step, StreamLine);
}

void StreamNear(const char* from, char* to, int64_t bytes) {
  if ((PastLine(to) | bytes % kLine) != 0) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  } else if (WidestVectors() == Vectors::k32Bytes) {
    LinesAvx2(from, to, bytes);
  } else {
    Lines(from, to, bytes, StreamLine);
  }
}

void FinishStreaming() { _mm_sfence(); }

#else

Vectors WidestVectors() { return Vectors::k16Bytes; }

void StreamRows(const char* from, char* to, int64_t rows, int64_t bytes, int64_t from_step, int64_t to_step, Vectors) {
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(to + i * to_step, from + i * from_step, static_cast<size_t>(bytes));
  }
}

void StreamNear(const char* from, char* to, int64_t bytes) { std::memcpy(to, from, static_cast<size_t>(bytes)); }

void FinishStreaming() {}

#endif

}  // namespace reshard::host
