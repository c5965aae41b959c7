#include "runtime/core/reduce_kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "runtime/core/copy_rows.h"
#include "runtime/core/float8.h"
#include "runtime/core/half.h"

// For code that is compiled twice: inside a function for AVX2 it is compiled for AVX2.
#define RESHARD_ALWAYS_INLINE __attribute__((always_inline)) inline

namespace reshard {
namespace {

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

// How elements lie in memory (Stored) and what they are combined in (Value).
template <typename T>
struct Plain {
  using Stored = T;
  using Value = T;
  static Value Load(Stored x) { return x; }
  static Stored Store(Value x) { return x; }
};
struct Half {
  using Stored = uint16_t;
  using Value = float;
  static Value Load(Stored x) { return HalfToFloat(x); }
  static Stored Store(Value x) { return FloatToHalf(x); }
};
struct BFloat16 {
  using Stored = uint16_t;
  using Value = float;
  static Value Load(Stored x) { return BFloat16ToFloat(x); }
  static Stored Store(Value x) { return FloatToBFloat16(x); }
};
template <typename F8>
struct Float8 {
  using Stored = uint8_t;
  using Value = float;
  static Value Load(Stored x) { return Float8ToFloat<F8>(x); }
  static Stored Store(Value x) { return FloatToFloat8<F8>(x); }
};
struct Bool {
  using Stored = uint8_t;
  using Value = uint8_t;
  static Value Load(Stored x) { return x != 0; }
  static Stored Store(Value x) { return x; }
};
// Integers are averaged in a type that holds the exact sum.
template <typename T>
struct Averaged {
  using Stored = T;
  using Value = std::conditional_t<sizeof(T) < 8, int64_t, std::conditional_t<std::is_signed_v<T>, Int128, UInt128>>;
  static Value Load(Stored x) { return static_cast<Value>(x); }
  static Stored Store(Value x) { return static_cast<Stored>(x); }
};
template <typename T>
struct Pair {  // a complex number
  T re;
  T im;
};
template <typename T>
struct Complex {
  using Stored = Pair<T>;
  using Value = Pair<T>;
  static Value Load(Stored x) { return x; }
  static Stored Store(Value x) { return x; }
};

// Integer sums and products wrap: they are formed in an unsigned type that is at least as wide as int, where nothing
// is undefined.
template <typename T>
using Wrapping = std::common_type_t<std::make_unsigned_t<T>, unsigned>;

struct Sum {
  template <typename T>
  static T Combine(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    } else {
      return a + b;
    }
  }
  template <typename T>
  static Pair<T> Combine(Pair<T> a, Pair<T> b) {
    return {a.re + b.re, a.im + b.im};
  }
  template <typename T>
  static T Finish(T sum, size_t) {
    return sum;
  }
};

struct Average : Sum {
  template <typename T>
  static T Finish(T sum, size_t count) {
    return sum / static_cast<T>(count);
  }
  template <typename T>
  static Pair<T> Finish(Pair<T> sum, size_t count) {
    return {sum.re / static_cast<T>(count), sum.im / static_cast<T>(count)};
  }
};

struct Product {
  template <typename T>
  static T Combine(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    } else {
      return a * b;
    }
  }
  template <typename T>
  static Pair<T> Combine(Pair<T> a, Pair<T> b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
  template <typename T>
  static T Finish(T product, size_t) {
    return product;
  }
};

// a != a holds for NaN only; a NaN on either side is the result.
struct Min {
  template <typename T>
  static T Combine(T a, T b) {
    return (a < b || a != a) ? a : b;
  }
  template <typename T>
  static T Finish(T x, size_t) {
    return x;
  }
};
struct Max {
  template <typename T>
  static T Combine(T a, T b) {
    return (a > b || a != a) ? a : b;
  }
  template <typename T>
  static T Finish(T x, size_t) {
    return x;
  }
};

// A block is what is combined at a time. Measured with 2 to 8 contributions: this block and the next one of all of them
// and the partial results have room in the nearest cache.
constexpr int64_t kBlockBytes = 1024;  // of the result
template <typename Stored>
constexpr int64_t kBlock = kBlockBytes / static_cast<int64_t>(sizeof(Stored));
constexpr int64_t kLine = 64;

template <typename Stored>
inline Stored Get(const char* data, int64_t i) {
  Stored x;
  std::memcpy(&x, data + i * static_cast<int64_t>(sizeof(Stored)), sizeof(Stored));
  return x;
}

// One pass over a block of elements that lie side by side everywhere, such that the compiler can widen the loop. The
// first pass begins with `before`, the others with the partial results; the last one writes `to`, the others the
// partial results.
template <typename Op, typename Type, bool kFirst, bool kLast>
RESHARD_ALWAYS_INLINE void Pass(const char* __restrict before, const char* __restrict next,
                                typename Type::Value* __restrict values, char* __restrict to, int64_t count,
                                size_t contributions) {
  using Stored = typename Type::Stored;
  for (int64_t i = 0; i < count; ++i) {
    typename Type::Value value;
    if constexpr (kFirst) {
      value = Type::Load(Get<Stored>(before, i));
    } else {
      value = values[i];
    }
    value = Op::Combine(value, Type::Load(Get<Stored>(next, i)));
    if constexpr (kLast) {
      const Stored x = Type::Store(Op::Finish(value, contributions));
      std::memcpy(to + i * static_cast<int64_t>(sizeof(Stored)), &x, sizeof(x));
    } else {
      values[i] = value;
    }
  }
}

// Asks memory for the next block while this one is combined.
RESHARD_ALWAYS_INLINE void FetchAhead(const char* data, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(data + at);
}

// At least two contributions; elements lie side by side everywhere.
template <typename Op, typename Type>
RESHARD_ALWAYS_INLINE void ReduceDense(const char* const* in, size_t contributions, char* out, int64_t elements,
                                       CopyMode mode) {
  using Stored = typename Type::Stored;
  constexpr auto kSize = static_cast<int64_t>(sizeof(Stored));
  typename Type::Value values[kBlock<Stored>];
  alignas(kLine) char staged[kBlockBytes];
  // Blocks begin on cache lines of the destination, so that whole lines are streamed.
  const auto past_line = static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) % static_cast<uintptr_t>(kLine));
  const bool stream = mode == CopyMode::kStreaming && past_line % kSize == 0;
  int64_t count = stream && past_line != 0 ? (kLine - past_line) / kSize : kBlock<Stored>;
  for (int64_t first = 0; first < elements; first += count, count = kBlock<Stored>) {
    count = std::min(count, elements - first);
    const int64_t at = first * kSize;
    const int64_t next = at + count * kSize;
    const int64_t ahead = std::min(kBlockBytes, elements * kSize - next);
    char* const to = stream ? staged : out + at;
    FetchAhead(in[0] + next, ahead);
    FetchAhead(in[1] + next, ahead);
    if (contributions == 2) {
      Pass<Op, Type, true, true>(in[0] + at, in[1] + at, values, to, count, contributions);
    } else {
      Pass<Op, Type, true, false>(in[0] + at, in[1] + at, values, to, count, contributions);
      for (size_t k = 2; k + 1 < contributions; ++k) {
        FetchAhead(in[k] + next, ahead);
        Pass<Op, Type, false, false>(nullptr, in[k] + at, values, to, count, contributions);
      }
      FetchAhead(in[contributions - 1] + next, ahead);
      Pass<Op, Type, false, true>(nullptr, in[contributions - 1] + at, values, to, count, contributions);
    }
    if (stream) CopyRows(staged, out + at, 1, count * kSize, 0, 0, CopyMode::kStreaming);
  }
}

// Types that are converted on the way are limited by the processor, not by memory, and AVX2 is twice as wide as what
// every x86-64 has. It comes without fused multiplication, so the bits are the same.
#if defined(__x86_64__)
template <typename Op, typename Type>
__attribute__((target("avx2"))) void ReduceDenseAvx2(const char* const* in, size_t contributions, char* out,
                                                     int64_t elements, CopyMode mode) {
  ReduceDense<Op, Type>(in, contributions, out, elements, mode);
}
#endif

// Runs visit(i, element i). Elements that lie side by side get a loop of their own, which the compiler can widen.
template <typename Stored, typename Visit>
inline void ForEach(const char* data, int64_t step, int64_t count, Visit visit) {
  if (step == static_cast<int64_t>(sizeof(Stored))) {
    for (int64_t i = 0; i < count; ++i) visit(i, Get<Stored>(data, i));
    return;
  }
  for (int64_t i = 0; i < count; ++i) visit(i, Get<Stored>(data + i * step, 0));
}

template <typename Op, typename Type>
void ReduceRow(const char* const* in, const int64_t* in_steps, size_t contributions, char* out, int64_t out_step,
               int64_t elements, CopyMode mode) {
  using Stored = typename Type::Stored;
  constexpr auto kSize = static_cast<int64_t>(sizeof(Stored));
  const bool dense =
      out_step == kSize && std::all_of(in_steps, in_steps + contributions, [](int64_t step) { return step == kSize; });
  if (dense && contributions > 1) {
#if defined(__x86_64__)
    constexpr bool kConverts = !std::is_same_v<Stored, typename Type::Value>;
    if constexpr (kConverts) {
      if (__builtin_cpu_supports("avx2")) return ReduceDenseAvx2<Op, Type>(in, contributions, out, elements, mode);
    }
#endif
    return ReduceDense<Op, Type>(in, contributions, out, elements, mode);
  }
  typename Type::Value values[kBlock<Stored>];
  for (int64_t first = 0; first < elements; first += kBlock<Stored>) {
    const int64_t count = std::min(kBlock<Stored>, elements - first);
    ForEach<Stored>(in[0] + first * in_steps[0], in_steps[0], count,
                    [&](int64_t i, Stored x) { values[i] = Type::Load(x); });
    for (size_t k = 1; k < contributions; ++k) {
      ForEach<Stored>(in[k] + first * in_steps[k], in_steps[k], count,
                      [&](int64_t i, Stored x) { values[i] = Op::Combine(values[i], Type::Load(x)); });
    }
    char* to = out + first * out_step;
    for (int64_t i = 0; i < count; ++i) {
      const Stored x = Type::Store(Op::Finish(values[i], contributions));
      std::memcpy(to + i * out_step, &x, sizeof(x));
    }
  }
}

template <typename Type, typename AverageType = Type>
ReduceRowFn Ordered(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ReduceRow<Sum, Type>;
    case ReduceOp::kAvg:
      return ReduceRow<Average, AverageType>;
    case ReduceOp::kMin:
      return ReduceRow<Min, Type>;
    case ReduceOp::kMax:
      return ReduceRow<Max, Type>;
    case ReduceOp::kProd:
      return ReduceRow<Product, Type>;
  }
  return nullptr;
}

template <typename T>
ReduceRowFn Integer(ReduceOp op) {
  return Ordered<Plain<T>, Averaged<T>>(op);
}

template <typename T>
ReduceRowFn Unordered(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ReduceRow<Sum, Complex<T>>;
    case ReduceOp::kAvg:
      return ReduceRow<Average, Complex<T>>;
    case ReduceOp::kProd:
      return ReduceRow<Product, Complex<T>>;
    default:
      return nullptr;
  }
}

ReduceRowFn Logical(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
      return ReduceRow<Max, Bool>;
    case ReduceOp::kProd:
    case ReduceOp::kMin:
      return ReduceRow<Min, Bool>;
    default:
      return nullptr;
  }
}

}  // namespace

ReduceRowFn ReduceRowKernel(ReduceOp op, DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return Logical(op);
    case DType::kI8:
      return Integer<int8_t>(op);
    case DType::kI16:
      return Integer<int16_t>(op);
    case DType::kI32:
      return Integer<int32_t>(op);
    case DType::kI64:
      return Integer<int64_t>(op);
    case DType::kU8:
      return Integer<uint8_t>(op);
    case DType::kU16:
      return Integer<uint16_t>(op);
    case DType::kU32:
      return Integer<uint32_t>(op);
    case DType::kU64:
      return Integer<uint64_t>(op);
    case DType::kF16:
      return Ordered<Half>(op);
    case DType::kBF16:
      return Ordered<BFloat16>(op);
    case DType::kF32:
      return Ordered<Plain<float>>(op);
    case DType::kF64:
      return Ordered<Plain<double>>(op);
    case DType::kC64:
      return Unordered<float>(op);
    case DType::kC128:
      return Unordered<double>(op);
    case DType::kF8E4M3FN:
      return Ordered<Float8<F8E4M3FN>>(op);
    case DType::kF8E5M2:
      return Ordered<Float8<F8E5M2>>(op);
    case DType::kF8E4M3FNUZ:
      return Ordered<Float8<F8E4M3FNUZ>>(op);
    case DType::kF8E5M2FNUZ:
      return Ordered<Float8<F8E5M2FNUZ>>(op);
  }
  return nullptr;
}

}  // namespace reshard
