#include "runtime/host/transpose.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace reshard::host {
namespace {

// As many elements as a vector register of every processor has.
constexpr int64_t kVectorBytes = 16;
template <typename T>
struct VectorOf {
  static constexpr int kCount = kVectorBytes / sizeof(T);
  typedef T Type __attribute__((vector_size(kVectorBytes)));
};

// a0 b0 a1 b1 .. of the lower halves, or of the upper ones.
template <typename T, int... kIndex>
inline auto Interleave(typename VectorOf<T>::Type a, typename VectorOf<T>::Type b, bool upper,
                       std::integer_sequence<int, kIndex...>) {
  constexpr int kCount = VectorOf<T>::kCount;
  return upper ? __builtin_shufflevector(a, b, (kIndex % 2 * kCount + kIndex / 2 + kCount / 2)...)
               : __builtin_shufflevector(a, b, (kIndex % 2 * kCount + kIndex / 2)...);
}

// Copies a square: as many columns, and as many rows, as a vector has elements.
template <typename T>
inline void CopySquare(const char* from, int64_t column_step, char* to, int64_t to_step) {
  using Vector = typename VectorOf<T>::Type;
  constexpr int kCount = VectorOf<T>::kCount;
  constexpr auto kIndices = std::make_integer_sequence<int, kCount>();
  Vector columns[kCount], interleaved[kCount];
  for (int i = 0; i < kCount; ++i) std::memcpy(&columns[i], from + i * column_step, kVectorBytes);
  // An element's number is its column's times kCount plus its row's. To interleave the first half of all with the
  // second rotates the digits of that number by one; when all digits of the column have moved past those of the row,
  // the two have changed places.
  for (int stage = 1; stage < kCount; stage *= 2) {
    for (int i = 0; i < kCount / 2; ++i) {
      interleaved[2 * i] = Interleave<T>(columns[i], columns[i + kCount / 2], false, kIndices);
      interleaved[2 * i + 1] = Interleave<T>(columns[i], columns[i + kCount / 2], true, kIndices);
    }
    for (int i = 0; i < kCount; ++i) columns[i] = interleaved[i];
  }
  for (int i = 0; i < kCount; ++i) std::memcpy(to + i * to_step, &columns[i], kVectorBytes);
}

template <int64_t kElement>
void CopyEach(const StridedMatrix& matrix, int64_t first_row, int64_t first_column, char* to, int64_t to_step) {
  for (int64_t column = first_column; column < matrix.columns; ++column) {
    const char* const from = matrix.from + column * matrix.column_step;
    for (int64_t row = first_row; row < matrix.rows; ++row) {
      std::memcpy(to + row * to_step + column * kElement, from + row * matrix.row_step, kElement);
    }
  }
}

// Columns lie far apart: the processor does not see by itself which comes next.
constexpr int64_t kColumnsAhead = 16;
void FetchColumns(const StridedMatrix& matrix, int64_t first, int64_t count, int64_t bytes) {
  constexpr int64_t kLine = 64;
  for (int64_t column = first; column < std::min(first + count, matrix.columns); ++column) {
    const char* const from = matrix.from + column * matrix.column_step;
    for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(from + at, 0);
  }
}

template <typename T>
void CopySquares(const StridedMatrix& matrix, char* to, int64_t to_step) {
  constexpr int64_t kElement = sizeof(T);
  if (matrix.row_step != kElement) return CopyEach<kElement>(matrix, 0, 0, to, to_step);
  constexpr int64_t kCount = VectorOf<T>::kCount;
  const int64_t rows = matrix.rows / kCount * kCount, columns = matrix.columns / kCount * kCount;
  for (int64_t column = 0; column < columns; column += kCount) {
    FetchColumns(matrix, column + kColumnsAhead, kCount, rows * kElement);
    for (int64_t row = 0; row < rows; row += kCount) {
      CopySquare<T>(matrix.from + row * kElement + column * matrix.column_step, matrix.column_step,
                    to + row * to_step + column * kElement, to_step);
    }
  }
  CopyEach<kElement>(matrix, 0, columns, to, to_step);
  StridedMatrix below = matrix;
  below.columns = columns;
  CopyEach<kElement>(below, rows, 0, to, to_step);
}

}  // namespace

void CopyToRows(const StridedMatrix& matrix, char* to, int64_t to_step) {
  switch (matrix.element) {
    case 1:
      return CopySquares<uint8_t>(matrix, to, to_step);
    case 2:
      return CopySquares<uint16_t>(matrix, to, to_step);
    case 4:
      return CopySquares<uint32_t>(matrix, to, to_step);
    case 8:
      return CopySquares<uint64_t>(matrix, to, to_step);
    default:
      return CopyEach<16>(matrix, 0, 0, to, to_step);
  }
}

}  // namespace reshard::host
