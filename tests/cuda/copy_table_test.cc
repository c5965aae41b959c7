// Tables of copies, worked off by the kernel's code on the host, against StridedCopy::Run of every job.
#include "runtime/cuda/copy_table.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "reshard/runtime/tensor_view.h"
#include "tests/catch.h"
#include "tests/cuda/run_on_host.h"

namespace reshard {
namespace {

constexpr int64_t kGuard = 64;  // bytes before and after a fragment that nothing may touch

// A fragment in a buffer of its own: index (0, 0, ..) is at `origin`, which is wherever alignment and negative strides
// put it.
struct Fragment {
  std::vector<char> bytes;
  int64_t origin = 0;
};

// One copy with both of its fragments. Buffers start at any byte: element-aligned or not.
struct Problem {
  Region region;
  int64_t element_size = 4;
  Dims from_shape, to_shape, from_strides, to_strides;
  Fragment from, to;
  StridedCopy copy;
};

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
  fragment.bytes.resize(static_cast<size_t>(fragment.origin + high + element_size + kGuard));
  for (char& c : fragment.bytes) c = static_cast<char>(random());
  return fragment;
}

Problem MakeProblem(std::mt19937_64& random, size_t most_dims, int64_t longest) {
  Problem p;
  p.element_size = int64_t{1} << Pick(random, 0, 4);
  const auto rank = static_cast<size_t>(Pick(random, 0, static_cast<int64_t>(most_dims)));
  p.from_shape.resize(rank);
  p.to_shape.resize(rank);
  for (size_t d = 0; d < rank; ++d) {
    if (Pick(random, 0, 2) == 0) {
      const int64_t size = Pick(random, 1, longest);
      p.region.push_back({{0, 0, size}});
      p.from_shape[d] = p.to_shape[d] = size;
    } else {
      p.region.push_back(RandomRuns(random, longest, &p.from_shape[d], &p.to_shape[d]));
    }
  }
  p.from_strides = RandomStrides(random, p.from_shape, p.element_size);
  p.to_strides = RandomStrides(random, p.to_shape, p.element_size);
  if (rank > 0 && Pick(random, 0, 2) == 0) {  // read backwards, or the same again and again
    int64_t& stride = p.from_strides[random() % rank];
    stride = Pick(random, 0, 3) == 0 ? 0 : -stride;
  }
  const int64_t step = Pick(random, 0, 2) == 0 ? 1 : Pick(random, 0, 1) == 0 ? p.element_size : 16;
  p.from = MakeFragment(random, p.from_shape, p.from_strides, p.element_size, Pick(random, 0, 3) * step);
  p.to = MakeFragment(random, p.to_shape, p.to_strides, p.element_size, Pick(random, 0, 3) * step);
  p.copy = StridedCopy(p.region, p.element_size, p.from_strides, p.to_strides);
  return p;
}

// Tensors of given shapes, `to` dense and `from` with these strides, both at such distances from a vector's alignment.
Problem Whole(std::mt19937_64& random, const Dims& shape, int64_t element_size, const Dims& from_strides,
              const Dims& to_strides, int64_t from_misalignment = 0, int64_t to_misalignment = 0) {
  Problem p;
  p.region = WholeRegion(shape);
  p.element_size = element_size;
  p.from_shape = p.to_shape = shape;
  p.from_strides = from_strides;
  p.to_strides = to_strides;
  p.from = MakeFragment(random, shape, from_strides, element_size, from_misalignment);
  p.to = MakeFragment(random, shape, to_strides, element_size, to_misalignment);
  p.copy = StridedCopy(p.region, element_size, from_strides, to_strides);
  return p;
}

// Every job with bases of its own, which point somewhere into its fragments: the rest is its offset.
CopyTable TableOf(std::mt19937_64& random, const std::vector<Problem>& problems, std::vector<uint64_t>* bases,
                  std::vector<std::vector<char>>* out, int64_t entry_limit) {
  std::vector<CopyJob> jobs;
  for (const Problem& p : problems) {
    out->push_back(p.to.bytes);
    CopyJob job;
    job.copy = &p.copy;
    job.from_offset = Pick(random, -40, 40);
    job.to_offset = Pick(random, -40, 40);
    job.from_base = static_cast<int>(bases->size());
    bases->push_back(reinterpret_cast<uintptr_t>(p.from.bytes.data() + p.from.origin) -
                     static_cast<uint64_t>(job.from_offset));
    job.to_base = static_cast<int>(bases->size());
    bases->push_back(reinterpret_cast<uintptr_t>(out->back().data() + p.to.origin) -
                     static_cast<uint64_t>(job.to_offset));
    jobs.push_back(job);
  }
  return MakeCopyTable(jobs, entry_limit);
}

CopyTable Check(std::mt19937_64& random, const std::vector<Problem>& problems, int64_t entry_limit = kCopyEntryLimit) {
  std::vector<uint64_t> bases;
  std::vector<std::vector<char>> out;
  out.reserve(problems.size());
  CopyTable table = TableOf(random, problems, &bases, &out, entry_limit);
  REQUIRE(table.first_chunk.size() == table.entries.size() + 1);
  REQUIRE(table.bases == static_cast<int>(bases.size()));
  int64_t bytes = 0;
  for (const CopyEntry& entry : table.entries) {
    REQUIRE(entry.bytes > 0);
    REQUIRE(entry.bytes <= entry_limit);
    bytes += entry.bytes;
  }
  int64_t expected_bytes = 0;
  for (const Problem& p : problems) expected_bytes += p.copy.bytes();
  REQUIRE(bytes == expected_bytes);
  REQUIRE(table.bytes == expected_bytes);
  REQUIRE(table.empty() == (bytes == 0));

  testing::RunCopyOnHost(table.entries.data(), table.first_chunk.data(), static_cast<uint32_t>(table.entries.size()),
                         testing::BasesOf(bases));
  for (size_t i = 0; i < problems.size(); ++i) {
    const Problem& p = problems[i];
    std::vector<char> expected = p.to.bytes;
    p.copy.Run(p.from.bytes.data() + p.from.origin, expected.data() + p.to.origin);
    CAPTURE(i, p.element_size, p.copy.bytes());
    REQUIRE(out[i] == expected);
  }
  return table;
}

std::vector<Problem> Only(Problem p) {
  std::vector<Problem> problems;
  problems.push_back(std::move(p));
  return problems;
}

TEST_CASE("a table of copies does what every copy does") {
  std::mt19937_64 random(testing::Seed());
  for (int round = 0; round < 600; ++round) {
    std::vector<Problem> problems;
    const int64_t jobs = Pick(random, 0, 6);
    for (int64_t i = 0; i < jobs; ++i) problems.push_back(MakeProblem(random, 4, Pick(random, 0, 3) == 0 ? 40 : 6));
    Check(random, problems);
  }
}

TEST_CASE("many small copies share blocks") {
  std::mt19937_64 random(testing::Seed());
  std::vector<Problem> problems;
  for (int i = 0; i < 1500; ++i) problems.push_back(MakeProblem(random, 2, 5));
  const CopyTable table = Check(random, problems);
  CHECK(table.bases > KernelBases::kInline);
  CHECK(table.first_chunk.back() < table.entries.size() / 4);
}

TEST_CASE("a large copy takes many blocks") {
  std::mt19937_64 random(testing::Seed());
  const Dims shape = {512, 513};
  for (int64_t from : {0, 4, 6, 7, 12}) {
    for (int64_t to : {0, 4, 6, 8}) {
      // In one run; then without a few columns, or with a pitch of whole vectors.
      const CopyTable table = Check(random, Only(Whole(random, shape, 4, {513, 1}, {513, 1}, from, to)));
      CHECK(table.entries.size() == 1);
      CHECK(table.first_chunk.back() > 200);
      Check(random, Only(Whole(random, shape, 4, {515, 1}, {513, 1}, from, to)));
      Check(random, Only(Whole(random, {300, 512}, 4, {516, 1}, {512, 1}, from, to)));
    }
  }
}

TEST_CASE("long rows that no vector divides are contiguous entries of their own") {
  std::mt19937_64 random(testing::Seed());
  const CopyTable odd = Check(random, Only(Whole(random, {3, 70001}, 1, {70003, 1}, {70001, 1}, 3, 5)));
  CHECK(odd.entries.size() == 3);
  const CopyTable even = Check(random, Only(Whole(random, {3, 65536}, 1, {65552, 1}, {65536, 1})));
  CHECK(even.entries.size() == 1);
}

TEST_CASE("fragments in the same unusual order of dimensions are one run") {
  std::mt19937_64 random(testing::Seed());
  const CopyTable table = Check(random, Only(Whole(random, {7, 5, 3}, 2, {1, 21, 7}, {1, 21, 7})));
  REQUIRE(table.entries.size() == 1);
  CHECK(table.entries[0].loop_count == 0);
  CHECK(table.entries[0].run == 7 * 5 * 3 * 2);
}

TEST_CASE("transposes go by tiles, of any element size, alignment and direction") {
  std::mt19937_64 random(testing::Seed());
  for (int64_t size : {1, 2, 4, 8, 16}) {
    for (const Dims& shape : {Dims{150, 131}, Dims{8, 300}, Dims{257, 9}, Dims{64, 64}}) {
      for (int64_t shift : {int64_t{0}, size, int64_t{1}}) {
        for (int64_t sign : {1, -1}) {
          const Dims read = {sign, shape[0] + shift % 3};
          const CopyTable table =
              Check(random, Only(Whole(random, shape, size, read, {shape[1], 1}, shift, size == 16 ? 0 : shift)));
          REQUIRE(table.entries.size() == 1);
          CHECK(table.entries[0].transposed);
        }
      }
    }
    // With other dimensions around and between.
    const CopyTable deep =
        Check(random, Only(Whole(random, {3, 20, 2, 70}, size, {1400 * 2, 1, 1400, 20}, {70 * 2 * 20, 140, 70, 1})));
    REQUIRE(deep.entries.size() == 1);
    CHECK(deep.entries[0].transposed);
    CHECK(deep.entries[0].loop_count >= 3);
  }
}

TEST_CASE("boxes of more loops or bytes than an entry holds become several") {
  std::mt19937_64 random(testing::Seed());
  // No two dimensions merge: every one has a gap on one side.
  const Dims shape = {2, 3, 2, 3, 2, 2, 3};
  Dims gaps(shape.size());
  int64_t stride = 2;
  for (size_t d = shape.size(); d-- > 0;) {
    gaps[d] = stride;
    stride *= shape[d] + 1;
  }
  const CopyTable deep = Check(random, Only(Whole(random, shape, 4, gaps, DenseStrides(shape))));
  CHECK(deep.entries.size() == 4);
  for (int64_t limit : {16, 48, 256, 4096}) {
    const CopyTable run = Check(random, Only(Whole(random, {5000}, 1, {1}, {1})), limit);
    CHECK(run.entries.size() == static_cast<size_t>((5000 + limit - 1) / limit));
    Check(random, Only(Whole(random, {50, 40}, 2, {41, 1}, {40, 1}, 2, 0)), limit);
    Check(random, Only(Whole(random, {5, 4, 30, 20}, 2, {2400, 600, 1, 30}, {2400, 600, 20, 1}, 2, 0)), limit);
  }
}

TEST_CASE("copies beyond 4 GiB are cut without loss") {
  // Only the table: nothing is allocated.
  const int64_t rows = (int64_t{5} << 30) + 7;
  const StridedCopy contiguous(WholeRegion({rows}), 2, {1}, {1});
  const StridedCopy spread(WholeRegion({rows}), 2, {3}, {1});
  const StridedCopy wide(WholeRegion({3, rows}), 1, {rows + 1, 1}, {rows, 1});
  for (const StridedCopy* copy : {&contiguous, &spread, &wide}) {
    const CopyTable table = MakeCopyTable({{copy, 0, 5, 1, 9}});
    CHECK(table.bytes == copy->bytes());
    // Entries write one after another, without gaps: all of these destinations are dense.
    std::vector<CopyEntry> entries = table.entries;
    std::sort(entries.begin(), entries.end(), [](const CopyEntry& a, const CopyEntry& b) { return a.to < b.to; });
    int64_t at = 9;
    for (const CopyEntry& entry : entries) {
      REQUIRE(entry.bytes <= kCopyEntryLimit);
      REQUIRE(entry.to == at);
      at += entry.bytes;
    }
    CHECK(at == 9 + copy->bytes());
  }
}

TEST_CASE("jobs that copy nothing are left out") {
  const StridedCopy nothing;
  const CopyTable table = MakeCopyTable({{&nothing, 0, 0, 1, 0}});
  CHECK(table.empty());
  CHECK(table.first_chunk == std::vector<uint32_t>{0});
  CHECK(MakeCopyTable({}).empty());
}

TEST_CASE("division by a multiplier is division") {
  std::mt19937_64 random(testing::Seed());
  constexpr uint32_t kTop = 0x7FFFFFFF;
  std::vector<uint32_t> divisors = {1, 2, 3, 5, 7, 641, 65535, 65536, 65537, kTop - 1, kTop};
  for (int i = 0; i < 31; ++i) {
    for (uint32_t near : {(uint32_t{1} << i) - 1, uint32_t{1} << i, (uint32_t{1} << i) + 1}) divisors.push_back(near);
  }
  for (int i = 0; i < 2000; ++i) divisors.push_back(static_cast<uint32_t>(random() >> (33 + random() % 31)));
  for (uint32_t d : divisors) {
    if (d == 0) continue;
    const Divider divider = Divider::Of(d);
    std::vector<uint32_t> numbers = {0, 1, d - 1, d, kTop, kTop - 1, kTop / d * d, kTop / d * d - 1};
    for (int i = 0; i < 50; ++i) {
      const auto n = static_cast<uint32_t>(random() >> 33);
      numbers.push_back(n);
      numbers.push_back(n / d * d);
      if (n >= d) numbers.push_back(n / d * d - 1);
    }
    for (uint32_t n : numbers) {
      if (divider.Quotient(n) != n / d) FAIL(n << " / " << d << " = " << divider.Quotient(n));
    }
  }
}

}  // namespace
}  // namespace reshard
