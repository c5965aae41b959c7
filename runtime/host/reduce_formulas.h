// What a reduction does to elements, for every pair of operation and type; shared by the code for hosts and for GPUs.
#ifndef RESHARD_RUNTIME_HOST_REDUCE_FORMULAS_H_
#define RESHARD_RUNTIME_HOST_REDUCE_FORMULAS_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "reshard/layout/dtype.h"
#include "runtime/host/float8.h"
#include "runtime/host/half.h"

namespace reshard::host::formulas {

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

// How elements are represented in memory (Stored), and in which type they are combined (Value).
template <typename T>
struct Plain {
  using Stored = T;
  using Value = T;
  static constexpr Value Load(Stored x) { return x; }
  static constexpr Stored Store(Value x) { return x; }
};
struct Half {
  using Stored = uint16_t;
  using Value = float;
  static constexpr Value Load(Stored x) { return HalfToFloat(x); }
  static constexpr Stored Store(Value x) { return FloatToHalf(x); }
};
struct BFloat16 {
  using Stored = uint16_t;
  using Value = float;
  static constexpr Value Load(Stored x) { return BFloat16ToFloat(x); }
  static constexpr Stored Store(Value x) { return FloatToBFloat16(x); }
};
template <typename F8>
struct Float8 {
  using Stored = uint8_t;
  using Value = float;
  static constexpr Value Load(Stored x) { return Float8ToFloat<F8>(x); }
  static constexpr Stored Store(Value x) { return FloatToFloat8<F8>(x); }
};
struct Bool {
  using Stored = uint8_t;
  using Value = uint8_t;
  static constexpr Value Load(Stored x) { return x != 0; }
  static constexpr Stored Store(Value x) { return x; }
};
// Integers are averaged in a type that holds the exact sum.
template <typename T>
struct Averaged {
  using Stored = T;
  using Value = std::conditional_t<sizeof(T) < 8, int64_t, std::conditional_t<std::is_signed_v<T>, Int128, UInt128>>;
  static constexpr Value Load(Stored x) { return static_cast<Value>(x); }
  static constexpr Stored Store(Value x) { return static_cast<Stored>(x); }
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
  static constexpr Value Load(Stored x) { return x; }
  static constexpr Stored Store(Value x) { return x; }
};

// Integer sums and products wrap: they are formed in an unsigned type that is at least as wide as int, where nothing
// is undefined.
template <typename T>
using Wrapping = std::common_type_t<std::make_unsigned_t<T>, unsigned>;

struct Sum {
  template <typename T>
  static constexpr T Combine(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    } else {
      return a + b;
    }
  }
  template <typename T>
  static constexpr Pair<T> Combine(Pair<T> a, Pair<T> b) {
    return {a.re + b.re, a.im + b.im};
  }
  template <typename T>
  static constexpr T Finish(T sum, size_t) {
    return sum;
  }
};

struct Average : Sum {
  template <typename T>
  static constexpr T Finish(T sum, size_t count) {
    return sum / static_cast<T>(count);
  }
  template <typename T>
  static constexpr Pair<T> Finish(Pair<T> sum, size_t count) {
    return {sum.re / static_cast<T>(count), sum.im / static_cast<T>(count)};
  }
};

struct Product {
  template <typename T>
  static constexpr T Combine(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    } else {
      return a * b;
    }
  }
  template <typename T>
  static constexpr Pair<T> Combine(Pair<T> a, Pair<T> b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
  template <typename T>
  static constexpr T Finish(T product, size_t) {
    return product;
  }
};

// a != a holds for NaN only; a NaN on either side is the result.
struct Min {
  template <typename T>
  static constexpr T Combine(T a, T b) {
    return (a < b || a != a) ? a : b;  // NOLINT(misc-redundant-expression)
  }
  template <typename T>
  static constexpr T Finish(T x, size_t) {
    return x;
  }
};
struct Max {
  template <typename T>
  static constexpr T Combine(T a, T b) {
    return (a > b || a != a) ? a : b;  // NOLINT(misc-redundant-expression)
  }
  template <typename T>
  static constexpr T Finish(T x, size_t) {
    return x;
  }
};

template <typename Type, typename AverageType, typename Ops, typename Visitor>
__attribute__((always_inline)) constexpr auto VisitOrdered(Ops op, const Visitor& visitor) {
  switch (op) {
    case Ops::kSum:
      return visitor.template Visit<Sum, Type>();
    case Ops::kAvg:
      return visitor.template Visit<Average, AverageType>();
    case Ops::kMin:
      return visitor.template Visit<Min, Type>();
    case Ops::kMax:
      return visitor.template Visit<Max, Type>();
    case Ops::kProd:
      return visitor.template Visit<Product, Type>();
  }
  return decltype(visitor.template Visit<Sum, Type>()){};
}

template <typename T, typename Ops, typename Visitor>
__attribute__((always_inline)) constexpr auto VisitInteger(Ops op, const Visitor& visitor) {
  return VisitOrdered<Plain<T>, Averaged<T>>(op, visitor);
}
template <typename Type, typename Ops, typename Visitor>
__attribute__((always_inline)) constexpr auto VisitFloat(Ops op, const Visitor& visitor) {
  return VisitOrdered<Type, Type>(op, visitor);
}

template <typename T, typename Ops, typename Visitor>
__attribute__((always_inline)) constexpr auto VisitComplex(Ops op, const Visitor& visitor) {
  switch (op) {
    case Ops::kSum:
      return visitor.template Visit<Sum, Complex<T>>();
    case Ops::kAvg:
      return visitor.template Visit<Average, Complex<T>>();
    case Ops::kProd:
      return visitor.template Visit<Product, Complex<T>>();
    default:
      return decltype(visitor.template Visit<Sum, Complex<T>>()){};
  }
}

template <typename Ops, typename Visitor>
__attribute__((always_inline)) constexpr auto VisitBool(Ops op, const Visitor& visitor) {
  switch (op) {
    case Ops::kSum:
    case Ops::kMax:
      return visitor.template Visit<Max, Bool>();
    case Ops::kProd:
    case Ops::kMin:
      return visitor.template Visit<Min, Bool>();
    default:
      return decltype(visitor.template Visit<Max, Bool>()){};
  }
}

// Returns visitor.Visit<formula, type>() for that pair, or a default value for pairs that CheckReduction refuses. Ops
// is an enum with the names of ReduceOp.
template <typename Ops, typename Visitor>
__attribute__((always_inline)) constexpr auto VisitReduction(Ops op, DType dtype, const Visitor& visitor) {
  switch (dtype) {
    case DType::kBool:
      return VisitBool(op, visitor);
    case DType::kI8:
      return VisitInteger<int8_t>(op, visitor);
    case DType::kI16:
      return VisitInteger<int16_t>(op, visitor);
    case DType::kI32:
      return VisitInteger<int32_t>(op, visitor);
    case DType::kI64:
      return VisitInteger<int64_t>(op, visitor);
    case DType::kU8:
      return VisitInteger<uint8_t>(op, visitor);
    case DType::kU16:
      return VisitInteger<uint16_t>(op, visitor);
    case DType::kU32:
      return VisitInteger<uint32_t>(op, visitor);
    case DType::kU64:
      return VisitInteger<uint64_t>(op, visitor);
    case DType::kF16:
      return VisitFloat<Half>(op, visitor);
    case DType::kBF16:
      return VisitFloat<BFloat16>(op, visitor);
    case DType::kF32:
      return VisitFloat<Plain<float>>(op, visitor);
    case DType::kF64:
      return VisitFloat<Plain<double>>(op, visitor);
    case DType::kC64:
      return VisitComplex<float>(op, visitor);
    case DType::kC128:
      return VisitComplex<double>(op, visitor);
    case DType::kF8E4M3FN:
      return VisitFloat<Float8<F8E4M3FN>>(op, visitor);
    case DType::kF8E5M2:
      return VisitFloat<Float8<F8E5M2>>(op, visitor);
    case DType::kF8E4M3FNUZ:
      return VisitFloat<Float8<F8E4M3FNUZ>>(op, visitor);
    case DType::kF8E5M2FNUZ:
      return VisitFloat<Float8<F8E5M2FNUZ>>(op, visitor);
    case DType::kC32:
    case DType::kF8E8M0:
    case DType::kF4E2M1x2:
      break;
  }
  return decltype(VisitBool(op, visitor)){};
}

}  // namespace reshard::host::formulas

#endif  // RESHARD_RUNTIME_HOST_REDUCE_FORMULAS_H_
