#include "runtime/host/reduce_kernels.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "runtime/host/copy_rows.h"
#include "runtime/host/reduce_formulas.h"
#include "runtime/host/stream_rows.h"

// For code that is compiled twice: inside a function for AVX2 it is compiled for AVX2.
#define RESHARD_ALWAYS_INLINE __attribute__((always_inline)) inline

namespace reshard::host {
namespace {

using namespace formulas;

// A block is what is combined at a time. Measured with 2 to 8 contributions: this block and the next one of all of
// them, and the partial results, fit in the nearest cache.
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

template <typename Stored>
inline void Put(char* data, int64_t i, Stored x) {
  std::memcpy(data + i * static_cast<int64_t>(sizeof(Stored)), &x, sizeof(Stored));
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
      Put(to, i, Type::Store(Op::Finish(value, contributions)));
    } else {
      values[i] = value;
    }
  }
}

// Prefetches the next block while this one is combined.
RESHARD_ALWAYS_INLINE void FetchAhead(const char* data, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(data + at);
}

// Elements whose conversion is long code are converted a block at a time: that code then exists once per type, instead
// of once per type, operation and pass.
template <typename Type>
constexpr bool kConvertedApart = std::is_same_v<Type, Half> ||
                                 (sizeof(typename Type::Stored) == 1 && std::is_same_v<typename Type::Value, float>);

template <typename Type>
RESHARD_ALWAYS_INLINE void LoadBlock(const char* __restrict from, char* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) Put(to, i, Type::Load(Get<typename Type::Stored>(from, i)));
}
template <typename Type>
RESHARD_ALWAYS_INLINE void StoreBlock(const char* __restrict from, char* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) Put(to, i, Type::Store(Get<typename Type::Value>(from, i)));
}

// Strided elements are copied together block by block, so that one set of loops serves every stride.
template <typename Isa, typename Op, typename Type>
RESHARD_ALWAYS_INLINE void ReduceRow(const char* const* in, const int64_t* in_steps, size_t contributions, char* out,
                                     int64_t out_step, int64_t elements, CopyMode mode) {
  using Stored = typename Type::Stored;
  // What the passes read and write.
  using Combined = std::conditional_t<kConvertedApart<Type>, Plain<float>, Type>;
  constexpr auto kSize = static_cast<int64_t>(sizeof(Stored));
  if (contributions == 1) {
    if constexpr (std::is_same_v<Type, Bool>) {  // what is not 0 becomes 1
      for (int64_t i = 0; i < elements; ++i) {
        Put(out + i * out_step, 0, Type::Load(Get<Stored>(in[0] + i * in_steps[0], 0)));
      }
      return;
    }
    return CopyRows(in[0], out, elements, kSize, in_steps[0], out_step, mode);
  }

  alignas(kLine) typename Type::Value values[kBlock<Stored>];
  constexpr size_t kCombinedBytes = kBlock<Stored> * sizeof(typename Combined::Stored);
  alignas(kLine) char gathered[kBlockBytes];
  alignas(kLine) char first_in[kCombinedBytes];
  alignas(kLine) char next_in[kCombinedBytes];
  alignas(kLine) char staged[kBlockBytes];
  alignas(kLine) char finished[kConvertedApart<Type> ? kCombinedBytes : 1];
  // Blocks begin on cache lines of the destination, so that whole lines are streamed.
  const auto past_line = static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) % static_cast<uintptr_t>(kLine));
  const bool dense_out = out_step == kSize;
  const bool stream = dense_out && mode == CopyMode::kStreaming && past_line % kSize == 0;
  int64_t count = stream && past_line != 0 ? (kLine - past_line) / kSize : kBlock<Stored>;
  for (int64_t first = 0; first < elements; first += count, count = kBlock<Stored>) {
    count = std::min(count, elements - first);
    const int64_t ahead = std::min(kBlock<Stored>, elements - first - count) * kSize;
    // Elements [first, first + count) of a contribution, side by side as the passes read them: where they are, or in
    // `buffer`.
    const auto block = [&](size_t k, char* buffer) -> const char* {
      const char* data = in[k] + first * in_steps[k];
      if (in_steps[k] == kSize) {
        FetchAhead(data + count * kSize, ahead);
      } else {
        char* const together = kConvertedApart<Type> ? gathered : buffer;
        CopyRows(data, together, count, kSize, in_steps[k], kSize, CopyMode::kCached);
        data = together;
      }
      if constexpr (kConvertedApart<Type>) {
        Isa::template Load<Type>(data, buffer, count);
        data = buffer;
      }
      return data;
    };
    char* const stored = stream || !dense_out ? staged : out + first * kSize;
    char* const to = kConvertedApart<Type> ? finished : stored;
    const char* const before = block(0, first_in);
    const char* const next = block(1, next_in);
    if (contributions == 2) {
      Pass<Op, Combined, true, true>(before, next, values, to, count, contributions);
    } else {
      Pass<Op, Combined, true, false>(before, next, values, to, count, contributions);
      for (size_t k = 2; k + 1 < contributions; ++k) {
        Pass<Op, Combined, false, false>(nullptr, block(k, next_in), values, to, count, contributions);
      }
      Pass<Op, Combined, false, true>(nullptr, block(contributions - 1, next_in), values, to, count, contributions);
    }
    if constexpr (kConvertedApart<Type>) Isa::template Store<Type>(finished, stored, count);
    if (stream) {
      StreamNear(staged, out + first * kSize, count * kSize);
    } else if (!dense_out) {
      CopyRows(staged, out + first * out_step, count, kSize, kSize, out_step, CopyMode::kCached);
    }
  }
}

// What a processor executes. Each has functions of its own that convert a block, since code for AVX2 is code of its
// own.
struct Portable {
  template <typename Type>
  static __attribute__((noinline)) void Load(const char* from, char* to, int64_t count) {
    LoadBlock<Type>(from, to, count);
  }
  template <typename Type>
  static __attribute__((noinline)) void Store(const char* from, char* to, int64_t count) {
    StoreBlock<Type>(from, to, count);
  }
  template <typename Op, typename Type>
  static void ReduceRow(const char* const* in, const int64_t* in_steps, size_t contributions, char* out,
                        int64_t out_step, int64_t elements, CopyMode mode) {
    host::ReduceRow<Portable, Op, Type>(in, in_steps, contributions, out, out_step, elements, mode);
  }
};

// AVX2 handles twice as many values at once as SSE2, which every x86-64 processor has; float8, float16 and bfloat16,
// which are converted on the way, gain the most. Fused multiply-add is a separate extension and stays off, so that the
// results have the same bits as those of Portable.
#if defined(__x86_64__)
#define RESHARD_AVX2 __attribute__((target("avx2")))
struct Avx2 {
  template <typename Type>
  static RESHARD_AVX2 __attribute__((noinline)) void Load(const char* from, char* to, int64_t count) {
    LoadBlock<Type>(from, to, count);
  }
  template <typename Type>
  static RESHARD_AVX2 __attribute__((noinline)) void Store(const char* from, char* to, int64_t count) {
    StoreBlock<Type>(from, to, count);
  }
  template <typename Op, typename Type>
  static RESHARD_AVX2 void ReduceRow(const char* const* in, const int64_t* in_steps, size_t contributions, char* out,
                                     int64_t out_step, int64_t elements, CopyMode mode) {
    host::ReduceRow<Avx2, Op, Type>(in, in_steps, contributions, out, out_step, elements, mode);
  }
};
#endif

struct RowKernel {
  template <typename Op, typename Type>
  ReduceRowFn Visit() const {
#if defined(__x86_64__)
    // Complex numbers and 128-bit sums gain nothing.
    if constexpr (std::is_arithmetic_v<typename Type::Value>) {
      if (__builtin_cpu_supports("avx2")) return Avx2::ReduceRow<Op, Type>;
    }
#endif
    return Portable::ReduceRow<Op, Type>;
  }
};

}  // namespace

ReduceRowFn ReduceRowKernel(ReduceOp op, DType dtype) { return VisitReduction(op, dtype, RowKernel()); }

}  // namespace reshard::host
