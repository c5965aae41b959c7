// Matrices that lie in memory by columns, brought into rows.
#ifndef RESHARD_RUNTIME_HOST_TRANSPOSE_H_
#define RESHARD_RUNTIME_HOST_TRANSPOSE_H_

#include <cstdint>

namespace reshard::host {

// A matrix of `rows` x `columns` elements of `element` bytes: 1, 2, 4, 8 or 16. The element in row r and column c
// begins r * row_step + c * column_step bytes after `from`; strides may be of any size and sign.
struct StridedMatrix {
  const char* from = nullptr;
  int64_t element = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_step = 0;
  int64_t column_step = 0;
};

// Post-condition: the element in row r and column c begins r * to_step + c * element bytes after `to`; no other byte is
// written. Fast where the elements of a column lie one after the other (row_step = element). The two do not overlap.
void CopyToRows(const StridedMatrix& matrix, char* to, int64_t to_step);

}  // namespace reshard::host

#endif  // RESHARD_RUNTIME_HOST_TRANSPOSE_H_
