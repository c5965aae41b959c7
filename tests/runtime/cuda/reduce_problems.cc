#include "tests/runtime/cuda/reduce_problems.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "runtime/host/float8.h"
#include "runtime/host/half.h"
#include "runtime/host/reduce.h"

namespace reshard::testing {
namespace {

constexpr int64_t kGuard = 64;

// Any bits: all codes of the narrow types, and the wide ones sprinkled with what is special about them.
void Fill(DType dtype, std::mt19937_64& random, std::vector<char>* bytes, int64_t at) {
  for (char& byte : *bytes) byte = static_cast<char>(random());
  const auto sprinkle = [&](auto... values) {
    using T = std::common_type_t<decltype(values)...>;
    const T special[] = {values...};
    for (auto i = static_cast<size_t>(at); i + sizeof(T) <= bytes->size(); i += sizeof(T)) {
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
bool SameElement(DType dtype, const char* a, const char* b) {
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
      return same([](uint16_t x) { return std::isnan(host::HalfToFloat(x)); }, uint16_t{}, 1);
    case DType::kBF16:
      return same([](uint16_t x) { return std::isnan(host::BFloat16ToFloat(x)); }, uint16_t{}, 1);
    case DType::kF8E4M3FN:
      return same([](uint8_t x) { return std::isnan(host::Float8ToFloat<host::F8E4M3FN>(x)); }, uint8_t{}, 1);
    case DType::kF8E5M2:
      return same([](uint8_t x) { return std::isnan(host::Float8ToFloat<host::F8E5M2>(x)); }, uint8_t{}, 1);
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

}  // namespace

ReduceProblem RandomReduction(std::mt19937_64& random, DType dtype, ReduceOp op, int64_t elements, int64_t members,
                              int64_t misalignment, int64_t gap) {
  ReduceProblem p;
  p.dtype = dtype;
  p.op = op;
  p.elements = elements;
  p.members = members;
  p.pitch = elements * SizeOf(dtype) + gap;
  p.at = kGuard + misalignment;
  p.in.resize(p.at + p.pitch * members);
  Fill(dtype, random, &p.in, p.at);
  p.before.resize(p.at + elements * SizeOf(dtype) + kGuard);
  for (char& byte : p.before) byte = static_cast<char>(random());
  return p;
}

std::vector<ReduceProblem> AllReductions(std::mt19937_64& random, DType dtype) {
  const int64_t size = SizeOf(dtype);
  std::vector<ReduceProblem> problems;
  for (ReduceOp op : kReduceOps) {
    if (!host::CheckReduction(op, dtype).ok()) continue;
    for (int64_t members : {1, 2, 3, 4, 5, 9}) {
      // Aligned for vectors with whole ones and without, for elements, and not at all.
      problems.push_back(RandomReduction(random, dtype, op, 1024, members, 0, 16));
      problems.push_back(RandomReduction(random, dtype, op, 1003, members, 0, 16 - 1003 * size % 16));
      problems.push_back(RandomReduction(random, dtype, op, 700, members, size, size));
      problems.push_back(RandomReduction(random, dtype, op, 300, members, 3, 1));
    }
  }
  return problems;
}

std::string Difference(const ReduceProblem& p, const std::vector<char>& out) {
  std::vector<char> expected = p.before;
  const Dims strides = {1};
  std::vector<host::Contribution> contributions;
  for (int64_t m = 0; m < p.members; ++m) contributions.push_back({p.in.data() + p.at + m * p.pitch, strides});
  host::ReduceBox(p.op, p.dtype, {p.elements}, contributions, expected.data() + p.at, strides);
  const std::string what = absl::StrCat(Name(p.op), " of ", std::string(Name(p.dtype)), ", ", p.members, " x ",
                                        p.elements, " elements ", p.pitch, " bytes apart, at ", p.at, ": ");
  const int64_t size = SizeOf(p.dtype);
  const int64_t end = p.at + p.elements * size;
  for (int64_t at = p.at; at < end; at += size) {
    if (!SameElement(p.dtype, out.data() + at, expected.data() + at)) {
      return absl::StrCat(what, "element ", (at - p.at) / size);
    }
  }
  if (!std::equal(out.begin(), out.begin() + p.at, expected.begin()) ||
      !std::equal(out.begin() + end, out.end(), expected.begin() + end)) {
    return absl::StrCat(what, "bytes around the result");
  }
  return "";
}

ReduceLaunch LaunchOf(std::mt19937_64& random, const std::vector<ReduceProblem>& problems) {
  ReduceLaunch launch;
  std::vector<cuda::ReduceJob> jobs;
  for (const ReduceProblem& p : problems) {
    cuda::ReduceJob job;
    job.in_base = static_cast<int>(launch.base_at.size());
    job.in_offset = static_cast<int64_t>(random() % 81) - 40;
    job.pitch = p.pitch;
    job.members = p.members;
    job.out_base = job.in_base + 1;
    job.out_offset = static_cast<int64_t>(random() % 81) - 40;
    job.elements = p.elements;
    job.dtype = p.dtype;
    job.op = p.op;
    launch.base_at.push_back(p.at - job.in_offset);
    launch.base_at.push_back(p.at - job.out_offset);
    jobs.push_back(job);
  }
  launch.table = cuda::MakeReduceTable(jobs);
  return launch;
}

}  // namespace reshard::testing
