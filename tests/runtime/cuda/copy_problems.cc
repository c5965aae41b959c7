#include "tests/runtime/cuda/copy_problems.h"

#include <algorithm>
#include <cstddef>

namespace reshard::testing {
namespace {

constexpr int64_t kGuard = 64;

int64_t Pick(std::mt19937_64& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

// Ascending runs inside both extents, often one, often evenly spaced.
std::vector<IndexRun> RandomRuns(std::mt19937_64& random, int64_t longest, int64_t* from_extent, int64_t* to_extent) {
  std::vector<IndexRun> runs;
  const int64_t kind = Pick(random, 0, 9);
  const int64_t count = kind == 0 ? 0 : kind < 6 ? 1 : Pick(random, 2, 4);
  const bool even = Pick(random, 0, 1) == 0;
  const int64_t length = Pick(random, 1, longest);
  const int64_t gap = Pick(random, 0, 3);
  int64_t from = Pick(random, 0, 1) * Pick(random, 0, 5);
  int64_t to = Pick(random, 0, 1) * Pick(random, 0, 5);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t n = even ? length : Pick(random, 1, longest);
    runs.push_back({from, to, n});
    from += n + (even ? gap : Pick(random, 0, 3));
    to += n + (even ? 0 : Pick(random, 0, 3));
  }
  *from_extent = from;
  *to_extent = to;
  return runs;
}

// Dimensions in a random order in memory, sometimes with gaps, sometimes with a pitch of whole vectors.
Dims RandomStrides(std::mt19937_64& random, const Dims& shape, int64_t element_size) {
  std::vector<size_t> order(shape.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = shape.size() - 1 - i;
  if (Pick(random, 0, 1) == 0) std::shuffle(order.begin(), order.end(), random);
  const int64_t gaps = Pick(random, 0, 2);
  Dims strides(shape.size());
  int64_t stride = gaps == 0 ? 1 : Pick(random, 1, 2);
  for (size_t d : order) {
    strides[d] = stride;
    stride *= std::max<int64_t>(1, shape[d]);
    if (gaps == 1) stride += Pick(random, 0, 3);
    if (gaps == 2) stride = (stride * element_size + 15) / 16 * 16 / element_size;
  }
  return strides;
}

Fragment MakeFragment(std::mt19937_64& random, const Dims& shape, const Dims& strides, int64_t element_size,
                      int64_t misalignment) {
  int64_t low = 0;
  int64_t high = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t last = std::max<int64_t>(shape[d] - 1, 0) * strides[d] * element_size;
    (last < 0 ? low : high) += last;
  }
  Fragment fragment;
  fragment.origin = kGuard - low + misalignment;
  fragment.bytes.resize(fragment.origin + high + element_size + kGuard);
  for (char& c : fragment.bytes) c = static_cast<char>(random());
  return fragment;
}

}  // namespace

CopyProblem RandomCopy(std::mt19937_64& random, size_t most_dims, int64_t longest) {
  CopyProblem p;
  p.element_size = int64_t{1} << Pick(random, 0, 4);
  const auto rank = static_cast<size_t>(Pick(random, 0, static_cast<int64_t>(most_dims)));
  Region region;
  Dims from_shape(rank);
  Dims to_shape(rank);
  for (size_t d = 0; d < rank; ++d) {
    if (Pick(random, 0, 2) == 0) {
      const int64_t size = Pick(random, 1, longest);
      region.push_back({{0, 0, size}});
      from_shape[d] = to_shape[d] = size;
    } else {
      region.push_back(RandomRuns(random, longest, &from_shape[d], &to_shape[d]));
    }
  }
  Dims from_strides = RandomStrides(random, from_shape, p.element_size);
  Dims to_strides = RandomStrides(random, to_shape, p.element_size);
  if (rank > 0 && Pick(random, 0, 2) == 0) {
    int64_t& stride = from_strides[random() % rank];
    stride = Pick(random, 0, 3) == 0 ? 0 : -stride;
  }
  if (rank > 0 && Pick(random, 0, 4) == 0) {
    int64_t& stride = to_strides[random() % rank];
    stride = -stride;
  }
  const int64_t step = Pick(random, 0, 2) == 0 ? 1 : Pick(random, 0, 1) == 0 ? p.element_size : 16;
  p.from = MakeFragment(random, from_shape, from_strides, p.element_size, Pick(random, 0, 3) * step);
  p.to = MakeFragment(random, to_shape, to_strides, p.element_size, Pick(random, 0, 3) * step);
  p.copy = StridedCopy(region, p.element_size, from_strides, to_strides);
  return p;
}

CopyProblem WholeCopy(std::mt19937_64& random, const Dims& shape, int64_t element_size, const Dims& from_strides,
                      const Dims& to_strides, int64_t from_misalignment, int64_t to_misalignment) {
  CopyProblem p;
  p.element_size = element_size;
  p.from = MakeFragment(random, shape, from_strides, element_size, from_misalignment);
  p.to = MakeFragment(random, shape, to_strides, element_size, to_misalignment);
  p.copy = StridedCopy(WholeRegion(shape), element_size, from_strides, to_strides);
  return p;
}

std::vector<char> Expected(const CopyProblem& problem) {
  std::vector<char> expected = problem.to.bytes;
  problem.copy.Run(problem.from.bytes.data() + problem.from.origin, expected.data() + problem.to.origin);
  return expected;
}

CopyLaunch LaunchOf(std::mt19937_64& random, const std::vector<CopyProblem>& problems, int64_t entry_limit) {
  CopyLaunch launch;
  std::vector<cuda::CopyJob> jobs;
  for (const CopyProblem& p : problems) {
    cuda::CopyJob job;
    job.copy = &p.copy;
    job.from_offset = Pick(random, -40, 40);
    job.to_offset = Pick(random, -40, 40);
    job.from_base = static_cast<int>(launch.base_at.size());
    job.to_base = job.from_base + 1;
    launch.base_at.push_back(p.from.origin - job.from_offset);
    launch.base_at.push_back(p.to.origin - job.to_offset);
    jobs.push_back(job);
  }
  launch.table = cuda::MakeCopyTable(jobs, entry_limit);
  return launch;
}

}  // namespace reshard::testing
