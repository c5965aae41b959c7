// Tables of reductions, worked off by the kernel's code on the host, against ReduceBox of every job.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "runtime/core/float8.h"
#include "runtime/core/half.h"
#include "runtime/core/reduce.h"
#include "runtime/cuda/copy_table.h"
#include "tests/catch.h"
#include "tests/cuda/run_on_host.h"
#include "tests/runtime/cases.h"

namespace reshard {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd};
constexpr size_t kGuard = 64;

struct Problem {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  int64_t elements = 0;
  int64_t members = 1;
  int64_t pitch = 0;
  std::vector<uint8_t> in;
  std::vector<uint8_t> before;  // what the result's buffer holds
  size_t in_at = 0;             // where the contributions and the result start in their buffers
  size_t out_at = 0;
};

uint64_t Random(std::mt19937_64& random, uint64_t low, uint64_t high) { return low + random() % (high - low + 1); }

// Any bits: all codes of the narrow types, and the wide ones sprinkled with what is special about them.
void Fill(DType dtype, std::mt19937_64& random, std::vector<uint8_t>* bytes, size_t at) {
  for (uint8_t& byte : *bytes) byte = static_cast<uint8_t>(random());
  const auto sprinkle = [&](auto... values) {
    using T = std::common_type_t<decltype(values)...>;
    const T special[] = {values...};
    for (size_t i = at; i + sizeof(T) <= bytes->size(); i += sizeof(T)) {
      if (random() % 3 != 0) continue;
      const T value = special[random() % std::size(special)];
      std::memcpy(bytes->data() + i, &value, sizeof(T));
    }
  };
  const auto reals = [&](auto one) {
    using T = decltype(one);
    using Limits = std::numeric_limits<T>;
    sprinkle(T(0), -T(0), one, -one, Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), Limits::max(),
             Limits::lowest(), Limits::min(), Limits::denorm_min(), -Limits::denorm_min());
  };
  const auto integers = [&](auto one) {
    using T = decltype(one);
    sprinkle(std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), T(0), one, static_cast<T>(-1));
  };
  switch (dtype) {
    case DType::kF32:
    case DType::kC64:
      return reals(1.0f);
    case DType::kF64:
    case DType::kC128:
      return reals(1.0);
    case DType::kF16:
      return sprinkle(uint16_t{0}, uint16_t{0x8000}, uint16_t{1}, uint16_t{0x7C00}, uint16_t{0xFC00}, uint16_t{0x7BFF},
                      uint16_t{0x7E00}, uint16_t{0x03FF}, uint16_t{0x0400}, uint16_t{0x3C00});
    case DType::kBF16:
      return sprinkle(uint16_t{0}, uint16_t{0x8000}, uint16_t{1}, uint16_t{0x7F80}, uint16_t{0xFF80}, uint16_t{0x7F7F},
                      uint16_t{0x7FC0}, uint16_t{0x007F}, uint16_t{0x0080}, uint16_t{0x3F80});
    case DType::kI32:
      return integers(int32_t{1});
    case DType::kI64:
      return integers(int64_t{1});
    case DType::kU64:
      return integers(uint64_t{1});
    case DType::kBool:
      return sprinkle(uint8_t{0}, uint8_t{0}, uint8_t{0}, uint8_t{1});
    default:
      return;
  }
}

// True for what is a NaN in both, or the same bits: the payload of a NaN is free.
bool SameElement(DType dtype, const uint8_t* a, const uint8_t* b) {
  const auto same = [&](auto is_nan, auto type, size_t parts) {
    decltype(type) x[2];
    decltype(type) y[2];
    std::memcpy(x, a, parts * sizeof(type));
    std::memcpy(y, b, parts * sizeof(type));
    for (size_t i = 0; i < parts; ++i) {
      if (is_nan(x[i]) != is_nan(y[i])) return false;
      if (!is_nan(x[i]) && std::memcmp(&x[i], &y[i], sizeof(type)) != 0) return false;
    }
    return true;
  };
  const auto real = [](auto x) { return std::isnan(x); };
  switch (dtype) {
    case DType::kF16:
      return same([](uint16_t x) { return std::isnan(HalfToFloat(x)); }, uint16_t{}, 1);
    case DType::kBF16:
      return same([](uint16_t x) { return std::isnan(BFloat16ToFloat(x)); }, uint16_t{}, 1);
    case DType::kF8E4M3FN:
      return same([](uint8_t x) { return std::isnan(Float8ToFloat<F8E4M3FN>(x)); }, uint8_t{}, 1);
    case DType::kF8E5M2:
      return same([](uint8_t x) { return std::isnan(Float8ToFloat<F8E5M2>(x)); }, uint8_t{}, 1);
    case DType::kF32:
      return same(real, float{}, 1);
    case DType::kF64:
      return same(real, double{}, 1);
    case DType::kC64:
      return same(real, float{}, 2);
    case DType::kC128:
      return same(real, double{}, 2);
    default:
      return std::memcmp(a, b, static_cast<size_t>(SizeOf(dtype))) == 0;
  }
}

Problem MakeProblem(std::mt19937_64& random, DType dtype, ReduceOp op, int64_t elements, int64_t members,
                    size_t misalignment, int64_t gap) {
  Problem p;
  p.dtype = dtype;
  p.op = op;
  p.elements = elements;
  p.members = members;
  p.pitch = elements * SizeOf(dtype) + gap;
  p.in_at = kGuard + misalignment;
  p.out_at = kGuard + misalignment;
  p.in.resize(p.in_at + static_cast<size_t>(p.pitch * members));
  Fill(dtype, random, &p.in, p.in_at);
  p.before.resize(p.out_at + static_cast<size_t>(elements * SizeOf(dtype)) + kGuard);
  for (uint8_t& byte : p.before) byte = static_cast<uint8_t>(random());
  return p;
}

ReduceTable Check(std::mt19937_64& random, const std::vector<Problem>& problems) {
  std::vector<uint64_t> bases;
  std::vector<ReduceJob> jobs;
  std::vector<std::vector<uint8_t>> out;
  out.reserve(problems.size());
  for (const Problem& p : problems) {
    out.push_back(p.before);
    ReduceJob job;
    job.in_base = static_cast<int>(bases.size());
    job.in_offset = static_cast<int64_t>(Random(random, 0, 80)) - 40;
    job.pitch = p.pitch;
    job.members = p.members;
    job.out_base = job.in_base + 1;
    job.out_offset = static_cast<int64_t>(Random(random, 0, 80)) - 40;
    job.elements = p.elements;
    job.dtype = p.dtype;
    job.op = p.op;
    bases.push_back(reinterpret_cast<uintptr_t>(p.in.data() + p.in_at) - static_cast<uint64_t>(job.in_offset));
    bases.push_back(reinterpret_cast<uintptr_t>(out.back().data() + p.out_at) - static_cast<uint64_t>(job.out_offset));
    jobs.push_back(job);
  }
  ReduceTable table = MakeReduceTable(jobs);
  REQUIRE(table.first_chunk.size() == table.entries.size() + 1);
  REQUIRE(table.bases == static_cast<int>(bases.size()));
  testing::RunReduceOnHost(table.entries.data(), table.first_chunk.data(), static_cast<uint32_t>(table.entries.size()),
                           testing::BasesOf(bases));
  for (size_t i = 0; i < problems.size(); ++i) {
    const Problem& p = problems[i];
    std::vector<uint8_t> expected = p.before;
    const Dims strides = {1};
    std::vector<Contribution> contributions;
    for (int64_t m = 0; m < p.members; ++m) contributions.push_back({p.in.data() + p.in_at + m * p.pitch, strides});
    ReduceBox(p.op, p.dtype, {p.elements}, contributions, expected.data() + p.out_at, strides);
    CAPTURE(std::string(Name(p.dtype)), Name(p.op), p.elements, p.members, p.in_at, p.pitch);
    const auto size = static_cast<size_t>(SizeOf(p.dtype));
    const auto end = p.out_at + static_cast<size_t>(p.elements) * size;
    for (size_t at = p.out_at; at < end; at += size) {
      if (!SameElement(p.dtype, &out[i][at], &expected[at])) FAIL("element " << (at - p.out_at) / size << " differs");
    }
    REQUIRE(std::equal(out[i].begin(), out[i].begin() + static_cast<int64_t>(p.out_at), expected.begin()));
    REQUIRE(std::equal(out[i].begin() + static_cast<int64_t>(end), out[i].end(),
                       expected.begin() + static_cast<int64_t>(end)));
  }
  return table;
}

TEST_CASE("a table of reductions does what every reduction does, for every type and operation") {
  std::mt19937_64 random(testing::Seed());
  for (DType dtype : testing::kAllTypes) {
    const auto size = static_cast<size_t>(SizeOf(dtype));
    std::vector<Problem> problems;
    for (ReduceOp op : kOps) {
      if (!CheckReduction(op, dtype).ok()) continue;
      for (int64_t members : {1, 2, 3, 4, 5, 9}) {
        // Aligned for vectors with whole ones and without, for elements, and not at all.
        problems.push_back(MakeProblem(random, dtype, op, 1024, members, 0, 16));
        problems.push_back(
            MakeProblem(random, dtype, op, 1003, members, 0, 16 - static_cast<int64_t>(1003 * size % 16)));
        problems.push_back(MakeProblem(random, dtype, op, 700, members, size, static_cast<int64_t>(size)));
        problems.push_back(MakeProblem(random, dtype, op, 300, members, 3, 1));
      }
    }
    Check(random, problems);
  }
}

TEST_CASE("a large reduction takes many blocks, an empty one none") {
  std::mt19937_64 random(testing::Seed());
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI8, DType::kC128}) {
    std::vector<Problem> problems;
    problems.push_back(MakeProblem(random, dtype, ReduceOp::kSum, 0, 3, 0, 0));
    problems.push_back(MakeProblem(random, dtype, ReduceOp::kSum, 100001, 3, 0, 48));
    problems.push_back(MakeProblem(random, dtype, ReduceOp::kProd, 1, 2, 0, 0));
    const ReduceTable table = Check(random, problems);
    CHECK(table.entries.size() == 2);
    CHECK(table.first_chunk.back() > 20);
  }
  CHECK(MakeReduceTable({}).empty());
}

TEST_CASE("hundreds of reductions are one table") {
  std::mt19937_64 random(testing::Seed());
  std::vector<Problem> problems;
  for (int i = 0; i < 400; ++i) {
    const DType dtype = testing::kAllTypes[random() % std::size(testing::kAllTypes)];
    const ReduceOp op = kOps[random() % std::size(kOps)];
    if (!CheckReduction(op, dtype).ok()) continue;
    problems.push_back(MakeProblem(random, dtype, op, static_cast<int64_t>(Random(random, 0, 600)),
                                   static_cast<int64_t>(Random(random, 1, 8)), Random(random, 0, 20),
                                   static_cast<int64_t>(Random(random, 0, 20))));
  }
  CHECK(Check(random, problems).bases > KernelBases::kInline);
}

}  // namespace
}  // namespace reshard
