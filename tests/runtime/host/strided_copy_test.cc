// The copy engine against a copy that visits one element at a time.
#include "reshard/runtime/strided_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "reshard/runtime/tensor_view.h"
#include "tests/catch.h"

namespace reshard {
namespace {

struct Problem {
  Region region;
  int64_t element_size = 4;
  Dims from_shape, to_shape;
  Dims from_strides, to_strides;
};

int64_t Span(const Dims& shape, const Dims& strides) {
  int64_t span = 1;
  for (size_t d = 0; d < shape.size(); ++d) span += (shape[d] - 1) * strides[d];
  return NumElements(shape) == 0 ? 0 : span;
}

// Every element of the region, one by one.
void NaiveCopy(const Problem& p, const char* from, char* to, size_t d = 0) {
  if (d == p.region.size()) {
    std::memcpy(to, from, static_cast<size_t>(p.element_size));
    return;
  }
  for (const IndexRun& run : p.region[d]) {
    for (int64_t i = 0; i < run.length; ++i) {
      NaiveCopy(p, from + (run.from + i) * p.from_strides[d] * p.element_size,
                to + (run.to + i) * p.to_strides[d] * p.element_size, d + 1);
    }
  }
}

std::vector<char> Noise(int64_t bytes, std::mt19937_64& random) {
  std::vector<char> data(static_cast<size_t>(bytes));
  for (char& c : data) c = static_cast<char>(random());
  return data;
}

void CheckAgainstNaive(const Problem& p, std::mt19937_64& random) {
  const std::vector<char> from = Noise(Span(p.from_shape, p.from_strides) * p.element_size, random);
  const std::vector<char> before = Noise(Span(p.to_shape, p.to_strides) * p.element_size, random);
  std::vector<char> expected = before;
  if (!from.empty() && !before.empty()) NaiveCopy(p, from.data(), expected.data());
  const StridedCopy copy(p.region, p.element_size, p.from_strides, p.to_strides);

  std::vector<char> whole = before;
  copy.Run(from.data(), whole.data());
  REQUIRE(whole == expected);
  std::vector<char> streamed = before;
  copy.Run(from.data(), streamed.data(), CopyMode::kStreaming);
  REQUIRE(streamed == expected);

  // Parts together do the same, in any order, and do nothing twice.
  const int64_t parts = 1 + static_cast<int64_t>(random() % 7);
  std::vector<char> in_parts = before;
  std::vector<int64_t> order;
  for (int64_t part = 0; part < parts; ++part) order.push_back(part);
  std::shuffle(order.begin(), order.end(), random);
  for (int64_t part : order) copy.RunPart(from.data(), in_parts.data(), part, parts);
  REQUIRE(in_parts == expected);

  // So do the boxes, which do nothing twice either.
  std::vector<char> in_boxes = before;
  int64_t box_bytes = 0;
  copy.VisitBoxes([&](const CopyBox& box) {
    REQUIRE(box.run > 0);
    int64_t rows = 1;
    for (const CopyBox::Loop& loop : box.loops) {
      REQUIRE(loop.count > 1);
      rows *= loop.count;
    }
    box_bytes += rows * box.run;
    for (int64_t row = 0; row < rows; ++row) {
      int64_t rest = row;
      int64_t from_at = box.from;
      int64_t to_at = box.to;
      for (size_t k = box.loops.size(); k-- > 0;) {
        const CopyBox::Loop& loop = box.loops[k];
        from_at += rest % loop.count * loop.from_step;
        to_at += rest % loop.count * loop.to_step;
        rest /= loop.count;
      }
      std::copy_n(from.begin() + from_at, box.run, in_boxes.begin() + to_at);
    }
  });
  REQUIRE(in_boxes == expected);
  REQUIRE(box_bytes == copy.bytes());

  int64_t elements = 1;
  for (const auto& runs : p.region) {
    int64_t length = 0;
    for (const IndexRun& run : runs) length += run.length;
    elements *= length;
  }
  REQUIRE(copy.bytes() == elements * p.element_size);
}

// Ascending disjoint runs inside both extents, often touching, often evenly spaced.
std::vector<IndexRun> RandomRuns(std::mt19937_64& random, int64_t* from_extent, int64_t* to_extent) {
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  std::vector<IndexRun> runs;
  const int64_t count = pick(0, 9) == 0 ? 0 : pick(1, 5);
  const bool even = pick(0, 1) == 0;
  const int64_t length = pick(1, 5);
  const int64_t from_gap = pick(0, 3);
  const int64_t to_gap = pick(0, 3);
  int64_t from = pick(0, 2);
  int64_t to = pick(0, 2);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t n = even ? length : pick(1, 5);
    runs.push_back({from, to, n});
    from += n + (even ? from_gap : pick(0, 3));
    to += n + (even ? to_gap : pick(0, 3));
  }
  *from_extent = from + pick(0, 1);
  *to_extent = to + pick(0, 1);
  return runs;
}

// Strides of a fragment whose dimensions lie in a random order in memory, sometimes with gaps.
Dims RandomStrides(std::mt19937_64& random, const Dims& shape, bool dense) {
  if (dense) return DenseStrides(shape);
  std::vector<size_t> order(shape.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  Dims strides(shape.size());
  int64_t stride = 1 + static_cast<int64_t>(random() % 2);
  for (size_t d : order) {
    strides[d] = stride;
    stride *= std::max<int64_t>(1, shape[d]) + static_cast<int64_t>(random() % 2);
  }
  return strides;
}

TEST_CASE("a strided copy moves what an element by element copy moves") {
  std::mt19937_64 random(testing::Seed());
  for (int round = 0; round < 3000; ++round) {
    Problem p;
    const int64_t sizes[] = {1, 2, 4, 8, 16};
    p.element_size = sizes[random() % 5];
    const size_t rank = random() % 5;
    p.from_shape.resize(rank);
    p.to_shape.resize(rank);
    for (size_t d = 0; d < rank; ++d) {
      if (random() % 3 == 0) {  // a whole dimension on both sides, so that dimensions merge
        const int64_t size = 1 + static_cast<int64_t>(random() % 4);
        p.region.push_back({{0, 0, size}});
        p.from_shape[d] = p.to_shape[d] = size;
      } else {
        p.region.push_back(RandomRuns(random, &p.from_shape[d], &p.to_shape[d]));
      }
    }
    const bool dense = random() % 2 == 0;
    p.from_strides = RandomStrides(random, p.from_shape, dense);
    p.to_strides = RandomStrides(random, p.to_shape, dense);
    CheckAgainstNaive(p, random);
  }
}

TEST_CASE("long rows are copied alike in both modes, wherever they start") {
  std::mt19937_64 random(testing::Seed());
  for (int64_t bytes : {1, 63, 64, 65, 127, 128, 1000, 4095, 4096, 10920, 16383, 16384, 16385, 70001}) {
    for (int64_t rows : {1, 2, 3, 4, 5, 9}) {
      Problem p;
      p.element_size = 1;
      const int64_t shift = static_cast<int64_t>(random() % 70);
      p.region = {{{0, 0, rows}}, {{shift, static_cast<int64_t>(random() % 70), bytes}}};
      p.from_shape = {rows, bytes + 70};
      p.to_shape = {rows, bytes + 70};
      p.from_strides = DenseStrides(p.from_shape);
      p.to_strides = DenseStrides(p.to_shape);
      CheckAgainstNaive(p, random);
    }
  }
}

TEST_CASE("a strided copy reads expanded sources") {
  std::mt19937_64 random(testing::Seed());
  Problem p;
  p.region = WholeRegion({3, 4});
  p.from_shape = p.to_shape = {3, 4};
  p.from_strides = {0, 1};
  p.to_strides = {4, 1};
  CheckAgainstNaive(p, random);
  p.from_strides = {0, 0};
  CheckAgainstNaive(p, random);
}

TEST_CASE("contiguous inner dimensions become one run of bytes") {
  const Dims whole = {4, 8, 16};
  const StridedCopy all(WholeRegion(whole), 2, DenseStrides(whole), DenseStrides(whole));
  CHECK(all.shortest_run() == 4 * 8 * 16 * 2);
  CHECK(all.max_parts() == 4 * 8 * 16 * 2);

  // Rows 1..3 of dimension 0, all of the others: one run.
  const StridedCopy rows({{{1, 0, 2}}, {{0, 0, 8}}, {{0, 0, 16}}}, 2, DenseStrides(whole), DenseStrides({2, 8, 16}));
  CHECK(rows.shortest_run() == 2 * 8 * 16 * 2);

  // A part of dimension 1: one run a row.
  const StridedCopy part({{{0, 0, 4}}, {{2, 0, 3}}, {{0, 0, 16}}}, 2, DenseStrides(whole), DenseStrides({4, 3, 16}));
  CHECK(part.shortest_run() == 3 * 16 * 2);
  CHECK(part.max_parts() == 4);

  // Two blocks of dimension 1 that touch on both sides are one.
  const StridedCopy touching({{{0, 0, 4}}, {{2, 0, 3}, {5, 3, 2}}, {{0, 0, 16}}}, 2, DenseStrides(whole),
                             DenseStrides({4, 5, 16}));
  CHECK(touching.shortest_run() == 5 * 16 * 2);

  // Dimensions of size 1 do not get in the way.
  const StridedCopy ones({{{0, 0, 1}}, {{0, 0, 8}}, {{3, 0, 1}}, {{0, 0, 16}}}, 2, DenseStrides({1, 8, 4, 16}),
                         DenseStrides({1, 8, 1, 16}));
  CHECK(ones.shortest_run() == 16 * 2);

  const StridedCopy scalar({}, 16, {}, {});
  CHECK(scalar.bytes() == 16);
  CHECK(scalar.shortest_run() == 16);
  const StridedCopy nothing({{}}, 4, {1}, {1});
  CHECK(nothing.bytes() == 0);
  CHECK(nothing.max_parts() == 0);
  nothing.VisitBoxes([](const CopyBox&) { FAIL("a box of nothing"); });
  nothing.Run(nullptr, nullptr);
}

TEST_CASE("tensor views know whether they are dense, overlap themselves or share memory") {
  char memory[256];
  CHECK(IsDense(DenseView(memory, DType::kF32, {2, 3})));
  CHECK(IsDense({memory, DType::kF32, {2, 1, 3}, {3, 77, 1}}));
  CHECK_FALSE(IsDense({memory, DType::kF32, {2, 3}, {1, 2}}));
  CHECK_FALSE(IsDense({memory, DType::kF32, {2, 3}, {4, 1}}));
  CHECK(IsDense({memory, DType::kF32, {0, 3}, {9, 9}}));
  CHECK(IsDense({memory, DType::kF32, {}, {}}));

  CHECK_FALSE(MayOverlapItself({memory, DType::kF32, {2, 3}, {1, 2}}));
  CHECK_FALSE(MayOverlapItself({memory, DType::kF32, {2, 3}, {-3, 1}}));
  CHECK(MayOverlapItself({memory, DType::kF32, {2, 3}, {0, 1}}));
  CHECK(MayOverlapItself({memory, DType::kF32, {2, 3}, {2, 1}}));

  const ConstTensorView low = DenseView(memory, DType::kI8, {16});
  const ConstTensorView high = DenseView(memory + 16, DType::kI8, {16});
  CHECK_FALSE(SpansIntersect(low, high));
  CHECK(SpansIntersect(low, DenseView(memory + 15, DType::kI8, {1})));
  CHECK(SpansIntersect(high, {memory + 31, DType::kI8, {16}, {-1}}));
  CHECK_FALSE(SpansIntersect(low, DenseView(memory, DType::kI8, {0})));
}

}  // namespace
}  // namespace reshard
