#include "runtime/host/reduce_kernels.h"

#include <algorithm>
#include <cstring>

#include "runtime/host/reduce_formulas.h"
#include "runtime/host/stream_rows.h"

// For code that is compiled twice: inside a function for AVX2 it is compiled for AVX2.
#define RESHARD_ALWAYS_INLINE __attribute__((always_inline)) inline

namespace reshard::host {
namespace {

using namespace formulas;

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
    if (stream) StreamNear(staged, out + at, count * kSize);
  }
}

// AVX2 is twice as wide as what every x86-64 has, which types that are converted on the way need, and writes staged
// blocks as StreamNear reads them. It comes without fused multiplication, so the bits are the same.
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
    if (__builtin_cpu_supports("avx2")) return ReduceDenseAvx2<Op, Type>(in, contributions, out, elements, mode);
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

struct RowKernel {
  template <typename Op, typename Type>
  ReduceRowFn Visit() const {
    return ReduceRow<Op, Type>;
  }
};

}  // namespace

ReduceRowFn ReduceRowKernel(ReduceOp op, DType dtype) { return VisitReduction(op, dtype, RowKernel()); }

}  // namespace reshard::host
