// Every reduction of every type against its definition.
#include "runtime/host/reduce.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/host/half.h"
#include "tests/catch.h"
#include "tests/runtime/cases.h"

namespace reshard {
namespace {

__extension__ using Int128 = __int128;

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd};

// Reduces `in` (one vector a contribution) as a 1-d box.
template <typename T>
std::vector<T> Reduced(ReduceOp op, DType dtype, const std::vector<std::vector<T>>& in) {
  const Dims strides = {1};
  std::vector<host::Contribution> contributions;
  for (const auto& values : in) contributions.push_back({values.data(), strides});
  std::vector<T> out(in[0].size());
  host::ReduceBox(op, dtype, {static_cast<int64_t>(out.size())}, contributions, out.data(), strides);
  return out;
}

// The definition in a type that holds everything; wraps like T for integer sums and products.
template <typename T>
T Defined(ReduceOp op, const std::vector<T>& values) {
  if (op == ReduceOp::kMin) return *std::min_element(values.begin(), values.end());
  if (op == ReduceOp::kMax) return *std::max_element(values.begin(), values.end());
  if constexpr (std::is_integral_v<T>) {
    if (op == ReduceOp::kAvg) {
      Int128 sum = 0;
      for (T v : values) sum += v;
      return static_cast<T>(sum / static_cast<Int128>(values.size()));
    }
    uint64_t result = op == ReduceOp::kProd ? 1 : 0;
    for (T v : values) {
      result = op == ReduceOp::kProd ? result * static_cast<uint64_t>(v) : result + static_cast<uint64_t>(v);
    }
    return static_cast<T>(result);
  } else {
    T result = op == ReduceOp::kProd ? T(1) : T(0);
    for (T v : values) result = op == ReduceOp::kProd ? result * v : result + v;
    return op == ReduceOp::kAvg ? result / static_cast<T>(values.size()) : result;
  }
}

template <typename T>
void CheckNumbers(DType dtype, T low, T high) {
  std::mt19937_64 random(testing::Seed());
  for (ReduceOp op : kOps) {
    for (size_t ranks : {1u, 2u, 3u, 8u}) {
      CAPTURE(Name(op), std::string(Name(dtype)), ranks);
      REQUIRE(host::CheckReduction(op, dtype).ok());
      // More than a block, and not a multiple of it.
      std::vector<std::vector<T>> in(ranks, std::vector<T>(1337));
      for (auto& values : in) {
        for (T& v : values) {
          if constexpr (std::is_integral_v<T>) {
            v = static_cast<T>(random());
          } else {
            v = static_cast<T>(std::uniform_real_distribution<double>(low, high)(random));
          }
        }
      }
      const std::vector<T> out = Reduced(op, dtype, in);
      for (size_t i = 0; i < out.size(); ++i) {
        std::vector<T> values;
        for (const auto& contribution : in) values.push_back(contribution[i]);
        REQUIRE(out[i] == Defined(op, values));
      }
    }
  }
}

TEST_CASE("integers and floats are reduced by the definition") {
  CheckNumbers<int8_t>(DType::kI8, 0, 0);
  CheckNumbers<int16_t>(DType::kI16, 0, 0);
  CheckNumbers<int32_t>(DType::kI32, 0, 0);
  CheckNumbers<int64_t>(DType::kI64, 0, 0);
  CheckNumbers<uint8_t>(DType::kU8, 0, 0);
  CheckNumbers<uint16_t>(DType::kU16, 0, 0);
  CheckNumbers<uint32_t>(DType::kU32, 0, 0);
  CheckNumbers<uint64_t>(DType::kU64, 0, 0);
  CheckNumbers<float>(DType::kF32, -3.0f, 3.0f);
  CheckNumbers<double>(DType::kF64, -3.0, 3.0);
}

TEST_CASE("f16 and bf16 are combined in f32 and rounded once") {
  struct Narrow {
    DType dtype;
    float (*to_float)(uint16_t);
    uint16_t (*from_float)(float);
  };
  std::mt19937_64 random(testing::Seed());
  for (const Narrow& narrow : {Narrow{DType::kF16, host::HalfToFloat, host::FloatToHalf},
                               Narrow{DType::kBF16, host::BFloat16ToFloat, host::FloatToBFloat16}}) {
    for (ReduceOp op : kOps) {
      CAPTURE(Name(op), std::string(Name(narrow.dtype)));
      std::vector<std::vector<uint16_t>> in(5, std::vector<uint16_t>(700));
      for (auto& values : in) {
        for (uint16_t& v : values) {
          v = narrow.from_float(std::uniform_real_distribution<float>(-4.0f, 4.0f)(random));
        }
      }
      const std::vector<uint16_t> out = Reduced(op, narrow.dtype, in);
      for (size_t i = 0; i < out.size(); ++i) {
        std::vector<float> values;
        for (const auto& contribution : in) values.push_back(narrow.to_float(contribution[i]));
        REQUIRE(out[i] == narrow.from_float(Defined(op, values)));
      }
    }
  }
}

TEST_CASE("conversions of f16 and bf16 are exact one way and round to nearest even the other") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = host::HalfToFloat(half);
    const int exponent = (half >> 10) & 31;
    const double mantissa = half & 1023;
    if (exponent == 31) {
      CHECK((mantissa == 0 ? std::isinf(value) : std::isnan(value)));
      if (mantissa == 0) REQUIRE(host::FloatToHalf(value) == half);
      if (mantissa != 0) REQUIRE(std::isnan(host::HalfToFloat(host::FloatToHalf(value))));
    } else {
      const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      REQUIRE(value == (half >> 15 ? -magnitude : magnitude));
      REQUIRE(host::FloatToHalf(value) == half);
      if (exponent < 30 && !(half >> 15)) {  // half way to the next one goes to the even one
        const float next = host::HalfToFloat(static_cast<uint16_t>(half + 1));
        const auto even = static_cast<uint16_t>(half + (half & 1));
        REQUIRE(host::FloatToHalf((value + next) / 2) == even);
        REQUIRE(host::FloatToHalf(std::nextafter((value + next) / 2, next)) == half + 1);
        REQUIRE(host::FloatToHalf(std::nextafter((value + next) / 2, value)) == half);
      }
    }
    const float wide = host::BFloat16ToFloat(half);
    if (std::isnan(wide)) {
      REQUIRE(std::isnan(host::BFloat16ToFloat(host::FloatToBFloat16(wide))));
    } else {
      REQUIRE(host::FloatToBFloat16(wide) == half);
    }
  }
  CHECK(host::FloatToHalf(65520.0f) == 0x7C00);
  CHECK(host::FloatToHalf(65519.0f) == 0x7BFF);
  CHECK(host::FloatToHalf(-1e30f) == 0xFC00);
  CHECK(host::FloatToBFloat16(1.00390625f) == 0x3F80);  // half way, to even
  CHECK(host::FloatToBFloat16(1.01171875f) == 0x3F82);
  CHECK(host::FloatToBFloat16(std::numeric_limits<float>::max()) == 0x7F80);
}

TEST_CASE("complex numbers have sum, avg and prod") {
  using C = std::complex<double>;
  const std::vector<std::vector<C>> in = {{{1, 2}, {0, 1}}, {{3, -1}, {0, 1}}, {{-2, 2}, {2, 0}}};
  CHECK(Reduced(ReduceOp::kSum, DType::kC128, in) == std::vector<C>{{2, 3}, {2, 2}});
  CHECK(Reduced(ReduceOp::kAvg, DType::kC128, in) == std::vector<C>{{2.0 / 3, 1.0}, {2.0 / 3, 2.0 / 3}});
  CHECK(Reduced(ReduceOp::kProd, DType::kC128, in) == std::vector<C>{{-20, 0}, {-2, 0}});
  using F = std::complex<float>;
  const std::vector<std::vector<F>> narrow = {{{1, 2}}, {{3, -1}}};
  CHECK(Reduced(ReduceOp::kProd, DType::kC64, narrow) == std::vector<F>{{5, 5}});
}

TEST_CASE("bools are or'ed and and'ed") {
  // Any byte but 0 is true; results are 0 and 1.
  const std::vector<std::vector<uint8_t>> in = {{0, 0, 1, 1}, {0, 2, 0, 255}};
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    CHECK(Reduced(op, DType::kBool, in) == std::vector<uint8_t>{0, 1, 1, 1});
  }
  for (ReduceOp op : {ReduceOp::kProd, ReduceOp::kMin}) {
    CHECK(Reduced(op, DType::kBool, in) == std::vector<uint8_t>{0, 0, 0, 1});
    CHECK(Reduced<uint8_t>(op, DType::kBool, {{0, 2, 255}}) == std::vector<uint8_t>{0, 1, 1});
  }
}

TEST_CASE("NaNs survive min and max") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    const std::vector<float> out = Reduced<float>(op, DType::kF32, {{nan, 1, 1}, {1, nan, 2}, {2, 2, 3}});
    CHECK(std::isnan(out[0]));
    CHECK(std::isnan(out[1]));
    CHECK(out[2] == (op == ReduceOp::kMin ? 1.0f : 3.0f));
  }
}

TEST_CASE("what has no meaning is refused, with the type named") {
  CHECK(host::CheckReduction(ReduceOp::kAvg, DType::kBool).code() == absl::StatusCode::kInvalidArgument);
  CHECK(host::CheckReduction(ReduceOp::kMin, DType::kC64).code() == absl::StatusCode::kInvalidArgument);
  CHECK(host::CheckReduction(ReduceOp::kMax, DType::kC128).code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(host::CheckReduction(ReduceOp::kMax, DType::kC64).message()).find("c64") != std::string::npos);
}

TEST_CASE("boxes of any strides are reduced") {
  std::mt19937_64 random(testing::Seed());
  for (int round = 0; round < 300; ++round) {
    const size_t rank = random() % 4;
    Dims box(rank);
    for (int64_t& size : box) size = static_cast<int64_t>(random() % 5) + (round % 7 == 0 ? 0 : 1);
    const int64_t elements = NumElements(box);
    const size_t ranks = 1 + random() % 4;
    // Each side has its own order of dimensions in memory, sometimes with gaps.
    const auto strides = [&] {
      std::vector<size_t> order(rank);
      for (size_t i = 0; i < rank; ++i) order[i] = i;
      if (random() % 2) std::shuffle(order.begin(), order.end(), random);
      Dims out(rank);
      int64_t stride = 1 + static_cast<int64_t>(random() % 2);
      for (size_t i = rank; i-- > 0;) {
        out[order[i]] = stride;
        stride *= std::max<int64_t>(box[order[i]], 1) + static_cast<int64_t>(random() % 2);
      }
      return out;
    };
    const size_t memory = 4096;
    std::vector<Dims> in_strides;
    std::vector<std::vector<int32_t>> in;
    std::vector<host::Contribution> contributions;
    for (size_t k = 0; k < ranks; ++k) {
      in_strides.push_back(strides());
      in.emplace_back(memory);
      for (int32_t& v : in.back()) v = static_cast<int32_t>(random() % 1000);
    }
    for (size_t k = 0; k < ranks; ++k) contributions.push_back({in[k].data(), in_strides[k]});
    const Dims out_strides = strides();
    std::vector<int32_t> out(memory, -1);
    std::vector<int32_t> expected = out;
    for (int64_t i = 0; i < elements; ++i) {
      int64_t rest = i;
      int64_t to = 0;
      std::vector<int64_t> from(ranks, 0);
      for (size_t d = rank; d-- > 0;) {
        const int64_t at = rest % box[d];
        rest /= box[d];
        to += at * out_strides[d];
        for (size_t k = 0; k < ranks; ++k) from[k] += at * in_strides[k][d];
      }
      int32_t sum = 0;
      for (size_t k = 0; k < ranks; ++k) sum += in[k][from[k]];
      expected[to] = sum;
    }
    host::ReduceBox(ReduceOp::kSum, DType::kI32, box, contributions, out.data(), out_strides);
    REQUIRE(out == expected);
  }
}

// Any finite number of the type, in every byte of it.
void FillFinite(DType dtype, std::mt19937_64& random, std::vector<uint8_t>* bytes) {
  for (uint8_t& byte : *bytes) byte = static_cast<uint8_t>(random());
  const std::string_view name = Name(dtype);
  if (name[0] != 'f' && name[0] != 'b' && name[0] != 'c') return;
  const size_t part = static_cast<size_t>(SizeOf(dtype)) / (name[0] == 'c' ? 2 : 1);
  for (size_t top = part - 1; top < bytes->size(); top += part) {
    (*bytes)[top] &= 0xBF;                         // not the largest exponents
    if ((*bytes)[top] == 0x80) (*bytes)[top] = 0;  // NaN in some f8 types
  }
}

TEST_CASE("elements side by side, streamed or not, are reduced like elements with gaps") {
  std::mt19937_64 random(testing::Seed());
  for (DType dtype : testing::kAllTypes) {
    const auto size = static_cast<size_t>(SizeOf(dtype));
    for (ReduceOp op : kOps) {
      if (!host::CheckReduction(op, dtype).ok()) continue;
      for (size_t ranks : {1u, 2u, 3u, 5u}) {
        for (size_t elements : {size_t{3}, 8192 / size, 20000 / size + 7}) {
          const size_t shift = random() % 70;  // elements before the destination: not on a cache line, or on one
          CAPTURE(std::string(Name(dtype)), Name(op), ranks, elements, shift);
          std::vector<std::vector<uint8_t>> dense;
          std::vector<std::vector<uint8_t>> spread;  // every third element
          std::vector<host::Contribution> dense_in;
          std::vector<host::Contribution> spread_in;
          const Dims one = {1};
          const Dims three = {3};
          for (size_t k = 0; k < ranks; ++k) {
            dense.emplace_back(elements * size);
            FillFinite(dtype, random, &dense.back());
            spread.emplace_back(elements * size * 3);
            for (size_t i = 0; i < elements; ++i) {
              std::copy_n(&dense.back()[i * size], size, &spread.back()[i * size * 3]);
            }
          }
          for (size_t k = 0; k < ranks; ++k) {
            dense_in.push_back({dense[k].data(), one});
            spread_in.push_back({spread[k].data(), three});
          }
          const Dims box = {static_cast<int64_t>(elements)};
          std::vector<uint8_t> expected((shift + elements) * size + 100, 0xA5);
          std::vector<uint8_t> cached = expected;
          std::vector<uint8_t> streamed = expected;
          std::vector<uint8_t> gaps(elements * size * 3);
          host::ReduceBox(op, dtype, box, spread_in, gaps.data(), three);
          for (size_t i = 0; i < elements; ++i) {
            std::copy_n(&gaps[i * size * 3], size, &expected[(shift + i) * size]);
          }
          host::ReduceBox(op, dtype, box, dense_in, &cached[shift * size], one);
          host::ReduceBox(op, dtype, box, dense_in, &streamed[shift * size], one, CopyMode::kStreaming);
          REQUIRE((cached == expected));
          REQUIRE((streamed == expected));
        }
      }
    }
  }
}

TEST_CASE("a range of a fragment is cut into boxes that cover it once, in order") {
  std::mt19937_64 random(testing::Seed());
  for (int round = 0; round < 500; ++round) {
    Dims shape(random() % 4);
    for (int64_t& size : shape) size = 1 + static_cast<int64_t>(random() % 6);
    const int64_t elements = NumElements(shape);
    const int64_t begin = static_cast<int64_t>(random() % static_cast<uint64_t>(elements + 1));
    const int64_t end = begin + static_cast<int64_t>(random() % static_cast<uint64_t>(elements - begin + 1));
    // A region whose `to` side is all of the shape, cut into runs.
    Region region;
    for (int64_t size : shape) {
      region.emplace_back();
      int64_t from = 0;
      for (int64_t to = 0; to < size;) {
        const int64_t length = std::min<int64_t>(size - to, 1 + static_cast<int64_t>(random() % 3));
        from += static_cast<int64_t>(random() % 3);
        region.back().push_back({from, to, length});
        from += length;
        to += length;
      }
    }
    const Dims strides = DenseStrides(shape);
    int64_t next = begin;
    size_t boxes = 0;
    host::ForEachBox(shape, begin, end, [&](absl::Span<const int64_t> offset, absl::Span<const int64_t> sizes) {
      int64_t at = 0;
      for (size_t d = 0; d < shape.size(); ++d) at += offset[d] * strides[d];
      REQUIRE(at == next);
      next += NumElements(sizes);
      ++boxes;
    });
    REQUIRE(next == end);
    REQUIRE(boxes <= 2 * shape.size() + 1);

    std::vector<int> seen(static_cast<size_t>(elements), 0);
    host::ForEachMappedBox(
        region, shape, begin, end,
        [&](absl::Span<const int64_t> from, absl::Span<const int64_t> to, absl::Span<const int64_t> sizes) {
          for (int64_t i = 0; i < NumElements(sizes); ++i) {
            int64_t rest = i;
            int64_t at = 0;
            for (size_t d = shape.size(); d-- > 0;) {
              const int64_t index = rest % sizes[d];
              rest /= sizes[d];
              at += (to[d] + index) * strides[d];
              bool mapped = false;
              for (const IndexRun& run : region[d]) {
                const int64_t in_run = to[d] + index - run.to;
                mapped |= in_run >= 0 && in_run < run.length && from[d] + index == run.from + in_run;
              }
              REQUIRE(mapped);
            }
            ++seen[at];
          }
        });
    for (int64_t i = 0; i < elements; ++i) {
      REQUIRE(seen[i] == (i >= begin && i < end ? 1 : 0));
    }
  }
}

}  // namespace
}  // namespace reshard
