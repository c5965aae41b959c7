#include "runtime/host/transpose.h"

#include <cstdint>
#include <random>
#include <vector>

#include "tests/catch.h"

namespace reshard {
namespace {

TEST_CASE("columns become rows, and nothing else is written") {
  std::mt19937_64 random(testing::Seed());
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  for (int i = 0; i < 400; ++i) {
    host::StridedMatrix matrix;
    matrix.element = int64_t{1} << between(0, 4);
    matrix.rows = between(0, 70);
    matrix.columns = between(0, 70);
    // By columns most times; sometimes with gaps, by rows, or upside down.
    const bool by_rows = random() % 4 == 0;
    const int64_t gap = random() % 4 == 0 ? between(1, 9) : 0;
    (by_rows ? matrix.column_step : matrix.row_step) = matrix.element + (random() % 4 == 0 ? gap : 0);
    (by_rows ? matrix.row_step : matrix.column_step) =
        (by_rows ? matrix.columns * matrix.column_step : matrix.rows * matrix.row_step) + gap;
    const int64_t span = matrix.rows * matrix.row_step + matrix.columns * matrix.column_step + 1;
    std::vector<char> memory(static_cast<size_t>(2 * span));
    for (char& byte : memory) byte = static_cast<char>(random());
    matrix.from = memory.data() + between(0, 1);
    if (random() % 4 == 0) {
      matrix.from += matrix.columns * matrix.column_step;
      matrix.column_step = -matrix.column_step;
    }

    const int64_t to_step = matrix.columns * matrix.element + between(0, 70);
    std::vector<char> to(static_cast<size_t>(matrix.rows * to_step + 1)), wanted;
    for (char& byte : to) byte = static_cast<char>(random());
    wanted = to;
    for (int64_t row = 0; row < matrix.rows; ++row) {
      for (int64_t at = 0; at < matrix.columns * matrix.element; ++at) {
        const int64_t column = at / matrix.element;
        wanted[row * to_step + at] =
            matrix.from[row * matrix.row_step + column * matrix.column_step + at % matrix.element];
      }
    }
    host::CopyToRows(matrix, to.data(), to_step);
    INFO(matrix.rows << " x " << matrix.columns << " elements of " << matrix.element << " bytes, steps "
                     << matrix.row_step << ", " << matrix.column_step);
    CHECK((to == wanted));
  }
}

}  // namespace
}  // namespace reshard
