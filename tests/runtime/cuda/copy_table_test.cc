// Tables of copies, worked off by the kernel's code on the host, against StridedCopy::Run of every job.
#include "runtime/cuda/copy_table.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "tests/catch.h"
#include "tests/fakes/run_on_host.h"
#include "tests/runtime/cuda/copy_problems.h"

namespace reshard {
namespace {

using testing::CopyProblem;
using testing::RandomCopy;
using testing::WholeCopy;

cuda::CopyTable Check(std::mt19937_64& random, const std::vector<CopyProblem>& problems,
                      int64_t entry_limit = cuda::kCopyEntryLimit) {
  testing::CopyLaunch launch = testing::LaunchOf(random, problems, entry_limit);
  const cuda::CopyTable& table = launch.table;
  REQUIRE(table.first_chunk.size() == table.entries.size() + 1);
  REQUIRE(table.bases == static_cast<int>(launch.base_at.size()));
  int64_t bytes = 0;
  for (const cuda::CopyEntry& entry : table.entries) {
    REQUIRE(entry.bytes > 0);
    REQUIRE(entry.bytes <= entry_limit);
    bytes += entry.bytes;
  }
  int64_t expected_bytes = 0;
  for (const CopyProblem& p : problems) expected_bytes += p.copy.bytes();
  REQUIRE(bytes == expected_bytes);
  REQUIRE(table.bytes == expected_bytes);
  REQUIRE(table.empty() == (bytes == 0));

  std::vector<std::vector<char>> out;
  std::vector<uint64_t> bases;
  for (const CopyProblem& p : problems) {
    out.push_back(p.to.bytes);
    for (const char* buffer : {p.from.bytes.data(), static_cast<const char*>(out.back().data())}) {
      bases.push_back(reinterpret_cast<uintptr_t>(buffer) + static_cast<uint64_t>(launch.base_at[bases.size()]));
    }
  }
  testing::RunCopyOnHost(table.entries.data(), table.first_chunk.data(), static_cast<uint32_t>(table.entries.size()),
                         testing::BasesOf(bases));
  for (size_t i = 0; i < problems.size(); ++i) {
    CAPTURE(i, problems[i].element_size, problems[i].copy.bytes());
    REQUIRE(out[i] == testing::Expected(problems[i]));
  }
  return std::move(launch.table);
}

std::vector<CopyProblem> Only(CopyProblem p) {
  std::vector<CopyProblem> problems;
  problems.push_back(std::move(p));
  return problems;
}

TEST_CASE("a table of copies does what every copy does") {
  std::mt19937_64 random(testing::Seed());
  for (int round = 0; round < 3000; ++round) {
    std::vector<CopyProblem> problems;
    const int64_t jobs = static_cast<int64_t>(random() % 7);
    for (int64_t i = 0; i < jobs; ++i) {
      problems.push_back(random() % 3 == 0 ? RandomCopy(random, 2, 40) : RandomCopy(random, 4, 6));
    }
    Check(random, problems);
  }
}

TEST_CASE("many small copies share blocks") {
  std::mt19937_64 random(testing::Seed());
  std::vector<CopyProblem> problems;
  for (int i = 0; i < 1500; ++i) problems.push_back(RandomCopy(random, 2, 5));
  const cuda::CopyTable table = Check(random, problems);
  CHECK(table.bases > cuda::KernelBases::kInline);
  CHECK(table.first_chunk.back() < table.entries.size() / 4);
}

TEST_CASE("a large copy takes many blocks") {
  std::mt19937_64 random(testing::Seed());
  const Dims shape = {512, 513};
  for (int64_t from : {0, 4, 6, 7, 12}) {
    for (int64_t to : {0, 4, 6, 8}) {
      // In one run; then without a few columns, or with a pitch of whole vectors.
      const cuda::CopyTable table = Check(random, Only(WholeCopy(random, shape, 4, {513, 1}, {513, 1}, from, to)));
      CHECK(table.entries.size() == 1);
      CHECK(table.first_chunk.back() > 200);
      Check(random, Only(WholeCopy(random, shape, 4, {515, 1}, {513, 1}, from, to)));
      Check(random, Only(WholeCopy(random, {300, 512}, 4, {516, 1}, {512, 1}, from, to)));
    }
  }
}

TEST_CASE("long rows that no vector divides are contiguous entries of their own") {
  std::mt19937_64 random(testing::Seed());
  const cuda::CopyTable odd = Check(random, Only(WholeCopy(random, {3, 70001}, 1, {70003, 1}, {70001, 1}, 3, 5)));
  CHECK(odd.entries.size() == 3);
  const cuda::CopyTable even = Check(random, Only(WholeCopy(random, {3, 65536}, 1, {65552, 1}, {65536, 1})));
  CHECK(even.entries.size() == 1);
}

TEST_CASE("fragments in the same unusual order of dimensions are one run") {
  std::mt19937_64 random(testing::Seed());
  const cuda::CopyTable table = Check(random, Only(WholeCopy(random, {7, 5, 3}, 2, {1, 21, 7}, {1, 21, 7})));
  REQUIRE(table.entries.size() == 1);
  CHECK(table.entries[0].loop_count == 0);
  CHECK(table.entries[0].run == 7 * 5 * 3 * 2);
}

TEST_CASE("transposes are done in tiles, of any element size, alignment and direction") {
  std::mt19937_64 random(testing::Seed());
  for (int64_t size : {1, 2, 4, 8, 16}) {
    for (const Dims& shape : {Dims{150, 131}, Dims{8, 300}, Dims{257, 9}, Dims{64, 64}}) {
      for (int64_t shift : {int64_t{0}, size, int64_t{1}}) {
        for (int64_t sign : {1, -1}) {
          const Dims read = {sign, shape[0] + shift % 3};
          const cuda::CopyTable table =
              Check(random, Only(WholeCopy(random, shape, size, read, {shape[1], 1}, shift, size == 16 ? 0 : shift)));
          REQUIRE(table.entries.size() == 1);
          CHECK(table.entries[0].transposed);
        }
      }
    }
    // With other dimensions around and between.
    const cuda::CopyTable deep = Check(
        random, Only(WholeCopy(random, {3, 20, 2, 70}, size, {1400 * 2, 1, 1400, 20}, {70 * 2 * 20, 140, 70, 1})));
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
  const cuda::CopyTable deep = Check(random, Only(WholeCopy(random, shape, 4, gaps, DenseStrides(shape))));
  CHECK(deep.entries.size() == 4);
  for (int64_t limit : {16, 48, 256, 4096}) {
    const cuda::CopyTable run = Check(random, Only(WholeCopy(random, {5000}, 1, {1}, {1})), limit);
    CHECK(run.entries.size() == static_cast<size_t>((5000 + limit - 1) / limit));
    Check(random, Only(WholeCopy(random, {50, 40}, 2, {41, 1}, {40, 1}, 2, 0)), limit);
    Check(random, Only(WholeCopy(random, {5, 4, 30, 20}, 2, {2400, 600, 1, 30}, {2400, 600, 20, 1}, 2, 0)), limit);
  }
}

TEST_CASE("copies beyond 4 GiB are cut without loss") {
  // Only the table: nothing is allocated.
  const int64_t rows = (int64_t{5} << 30) + 7;
  const StridedCopy contiguous(WholeRegion({rows}), 2, {1}, {1});
  const StridedCopy spread(WholeRegion({rows}), 2, {3}, {1});
  const StridedCopy wide(WholeRegion({3, rows}), 1, {rows + 1, 1}, {rows, 1});
  for (const StridedCopy* copy : {&contiguous, &spread, &wide}) {
    const cuda::CopyTable table = cuda::MakeCopyTable({{copy, 0, 5, 1, 9}});
    CHECK(table.bytes == copy->bytes());
    // Entries write one after another, without gaps: all of these destinations are dense.
    std::vector<cuda::CopyEntry> entries = table.entries;
    std::sort(entries.begin(), entries.end(),
              [](const cuda::CopyEntry& a, const cuda::CopyEntry& b) { return a.to < b.to; });
    int64_t at = 9;
    for (const cuda::CopyEntry& entry : entries) {
      REQUIRE(entry.bytes <= cuda::kCopyEntryLimit);
      REQUIRE(entry.to == at);
      at += entry.bytes;
    }
    CHECK(at == 9 + copy->bytes());
  }
}

TEST_CASE("jobs that copy nothing are left out") {
  const StridedCopy nothing;
  const cuda::CopyTable table = cuda::MakeCopyTable({{&nothing, 0, 0, 1, 0}});
  CHECK(table.empty());
  CHECK(table.first_chunk == std::vector<uint32_t>{0});
  CHECK(cuda::MakeCopyTable({}).empty());
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
    const cuda::Divider divider = cuda::Divider::Of(d);
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
