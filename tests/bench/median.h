#ifndef RESHARD_TESTS_BENCH_MEDIAN_H_
#define RESHARD_TESTS_BENCH_MEDIAN_H_

#include <algorithm>
#include <cstddef>
#include <vector>

namespace reshard::bench {

// The upper one of the two in the middle. There is at least one value.
inline double Median(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle), values.end());
  return values[middle];
}

}  // namespace reshard::bench

#endif  // RESHARD_TESTS_BENCH_MEDIAN_H_
