// The reduce kernel: a block combines one chunk of elements, every thread whole elements in the order of the members.
// The formulas are those of the host (runtime/host/reduce_formulas.h), so the bits are too; kernels.cu is compiled
// without fused multiplication for this reason.
#ifndef RESHARD_RUNTIME_CUDA_REDUCE_CODE_H_
#define RESHARD_RUNTIME_CUDA_REDUCE_CODE_H_

#include <bit>
#include <cstdint>
#include <type_traits>

#include "runtime/cuda/kernel_code.h"
#include "runtime/host/reduce_formulas.h"

namespace reshard::cuda {

// The types that make up most of what is reduced go 16 bytes at a time.
template <typename Type>
inline constexpr bool kReducesVectors =
    std::is_same_v<Type, host::formulas::Plain<float>> || std::is_same_v<Type, host::formulas::Half> ||
    std::is_same_v<Type, host::formulas::BFloat16>;

// What a thread of a block needs to know: its elements are [begin, end) of contributions that start at `in`.
struct ReduceShare {
  const char* in;
  char* out;
  int64_t pitch;
  int64_t begin;
  int64_t end;
  uint32_t members;
  uint32_t thread;

  template <typename Op, typename Type>
  RESHARD_KERNEL_CODE bool Visit() const {
    using Stored = typename Type::Stored;
    const uint64_t bits = reinterpret_cast<uintptr_t>(in) | reinterpret_cast<uintptr_t>(out) | uint64_t(pitch);
    int64_t first = begin;
    if constexpr (kReducesVectors<Type>) {
      // Chunks begin at whole vectors, so `begin` needs no check.
      if (bits % sizeof(Vector<16>) == 0) first = Vectors<Op, Type>();
    }
    if (bits % alignof(Stored) == 0) {
      Elements<Op, Type, true>(first);
    } else {
      Elements<Op, Type, false>(first);
    }
    return true;
  }

 private:
  template <typename Op, typename Type>
  RESHARD_KERNEL_CODE int64_t Vectors() const {
    struct Split {
      typename Type::Stored at[sizeof(Vector<16>) / sizeof(typename Type::Stored)];
    };
    constexpr int64_t kElements = sizeof(Vector<16>) / sizeof(typename Type::Stored);
    const int64_t vectors_end = end - (end - begin) % kElements;
    for (int64_t e = begin + thread * kElements; e < vectors_end; e += kBlockThreads * kElements) {
      const char* from = in + e * static_cast<int64_t>(sizeof(typename Type::Stored));
      typename Type::Value values[kElements];
      auto loaded = std::bit_cast<Split>(LoadAligned<Vector<16>>(from));
      RESHARD_UNROLL
      for (int64_t k = 0; k < kElements; ++k) values[k] = Type::Load(loaded.at[k]);
      RESHARD_UNROLL_BY(4)
      for (uint32_t m = 1; m < members; ++m) {
        from += pitch;
        loaded = std::bit_cast<Split>(LoadAligned<Vector<16>>(from));
        RESHARD_UNROLL
        for (int64_t k = 0; k < kElements; ++k) values[k] = Op::Combine(values[k], Type::Load(loaded.at[k]));
      }
      RESHARD_UNROLL
      for (int64_t k = 0; k < kElements; ++k) loaded.at[k] = Type::Store(Op::Finish(values[k], members));
      StoreAligned(out + e * static_cast<int64_t>(sizeof(typename Type::Stored)), std::bit_cast<Vector<16>>(loaded));
    }
    return vectors_end;
  }

  template <typename Op, typename Type, bool kAligned>
  RESHARD_KERNEL_CODE void Elements(int64_t first) const {
    using Stored = typename Type::Stored;
    constexpr auto kSize = static_cast<int64_t>(sizeof(Stored));
    for (int64_t e = first + thread; e < end; e += kBlockThreads) {
      const char* from = in + e * kSize;
      typename Type::Value value = Type::Load(Get<Stored, kAligned>(from));
      RESHARD_UNROLL_BY(kAligned ? 4 : 1)
      for (uint32_t m = 1; m < members; ++m) {
        from += pitch;
        value = Op::Combine(value, Type::Load(Get<Stored, kAligned>(from)));
      }
      Put<Stored, kAligned>(out + e * kSize, Type::Store(Op::Finish(value, members)));
    }
  }

  template <typename Stored, bool kAligned>
  static RESHARD_KERNEL_CODE Stored Get(const char* from) {
    if constexpr (kAligned) return LoadAligned<Stored>(from);
    Stored value;
    std::memcpy(&value, from, sizeof(Stored));
    return value;
  }
  template <typename Stored, bool kAligned>
  static RESHARD_KERNEL_CODE void Put(char* to, Stored value) {
    if constexpr (kAligned) return StoreAligned(to, value);
    std::memcpy(to, &value, sizeof(Stored));
  }
};

// What a thread of block `chunk` does; `entry` is EntryOfChunk.
RESHARD_KERNEL_CODE void ReduceChunk(const ReduceEntry& entry, const KernelBases& bases, uint32_t chunk,
                                     uint32_t thread) {
  ReduceShare share;
  share.in = bases.at(entry.in_base) + entry.in;
  share.out = bases.at(entry.out_base) + entry.out;
  share.pitch = entry.pitch;
  share.begin = static_cast<int64_t>(chunk) * entry.chunk_elements;
  share.end = entry.elements - share.begin < entry.chunk_elements ? entry.elements : share.begin + entry.chunk_elements;
  share.members = entry.members;
  share.thread = thread;
  host::formulas::VisitReduction(entry.op, static_cast<DType>(entry.dtype), share);
}

}  // namespace reshard::cuda

#endif  // RESHARD_RUNTIME_CUDA_REDUCE_CODE_H_
