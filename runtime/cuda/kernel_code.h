// What the kernels and their launcher share: the tables' entries, the base addresses of a launch, the size of a block.
// copy_code.h and reduce_code.h are the kernels themselves. All of it is for device and host alike: kernels.cu runs the
// code on a GPU, tests run the same code block by block on the host.
//
//   extern "C" __global__ void reshard_copy(const CopyEntry* entries, const uint32_t* first_chunk,
//                                           uint32_t entry_count, KernelBases bases);
//   extern "C" __global__ void reshard_reduce(const ReduceEntry* ...the same);
//
// are launched with kBlockThreads threads per block, as many blocks as there are chunks, and no dynamic shared memory.
#ifndef RESHARD_RUNTIME_CUDA_KERNEL_CODE_H_
#define RESHARD_RUNTIME_CUDA_KERNEL_CODE_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#ifdef __CUDACC__
#define RESHARD_KERNEL_CODE __host__ __device__ __forceinline__
#define RESHARD_KERNEL_PRAGMA(text) _Pragma(#text)
#else
#define RESHARD_KERNEL_CODE inline
#define RESHARD_KERNEL_PRAGMA(text)
#endif
// Before a loop: how far the device's compiler unrolls it.
#define RESHARD_UNROLL RESHARD_KERNEL_PRAGMA(unroll)
#define RESHARD_UNROLL_BY(n) RESHARD_KERNEL_PRAGMA(unroll n)

namespace reshard::cuda {

inline constexpr char kCopyKernel[] = "reshard_copy";
inline constexpr char kReduceKernel[] = "reshard_reduce";
inline constexpr uint32_t kBlockThreads = 256;
inline constexpr uint32_t kWarpThreads = 32;

// The addresses that entries name by their index, as a kernel's parameter: parameters have 4 KiB together.
struct KernelBases {
  static constexpr int kInline = 480;
  const uint64_t* all;  // in device memory, when there are more than kInline; else null
  uint64_t few[kInline];

  RESHARD_KERNEL_CODE char* at(uint32_t i) const {
    auto* memory = reinterpret_cast<char*>(static_cast<uintptr_t>(all != nullptr ? all[i] : few[i]));
#ifdef __CUDA_ARCH__
    __builtin_assume(__isGlobal(memory));
#endif
    return memory;
  }
};

// Division by a number that is known when the table is made: n / d for 1 <= d < 2^31 and n < 2^31.
struct Divider {
  uint32_t multiplier;
  uint32_t shift;

  // With s = ceil(log2 d): floor(2^(31+s) / d) + 1 exceeds 2^(31+s) / d by at most 2^s / d parts in 2^(31+s), which
  // n < 2^31 cannot carry over the next whole number.
  static constexpr Divider Of(uint32_t d) {
    uint32_t shift = 0;
    while ((uint32_t{1} << shift) < d) ++shift;
    return {static_cast<uint32_t>((uint64_t{1} << (31 + shift)) / d + 1), shift};
  }
  RESHARD_KERNEL_CODE uint32_t Quotient(uint32_t n) const {
    return static_cast<uint32_t>((uint64_t{n << 1} * multiplier) >> 32) >> shift;
  }
};

// One piece of a CopyTable: for every i of the loops, innermost first, `run` bytes from bases[from_base] + from +
// sum(i*from_step) to bases[to_base] + to + sum(i*to_step). Counts, runs and bytes are below 2^31.
//
// A transposed entry has elements of 1, 2, 4, 8 or 16 bytes as its runs; they lie side by side in loops[0] where they
// are written and in loops[1] where they are read (maybe backwards). Its chunks are tiles. Chunks of other entries are
// `chunk_bytes` of what it copies.
struct alignas(16) CopyEntry {
  static constexpr int kMaxLoops = 5;
  struct Loop {
    int64_t from_step;
    int64_t to_step;
    uint32_t count;
    Divider by_count;
    uint32_t tiles;  // of a transposed entry
  };

  int64_t from;
  int64_t to;
  uint32_t from_base;
  uint32_t to_base;
  uint32_t bytes;  // of all runs together
  uint32_t run;
  Divider by_run;
  uint32_t chunk_bytes;
  uint8_t loop_count;
  uint8_t alignment;  // that steps and the run have in common: 1, 2, 4, 8 or 16
  uint8_t transposed;
  uint8_t sharing;  // number of entries before this one in the same chunk: each is a warp's work
  Loop loops[kMaxLoops];
};
static_assert(std::is_trivially_copyable_v<CopyEntry> && sizeof(CopyEntry) == 208);

// ReduceOp without the headers of plans.
enum class KernelReduceOp : uint8_t { kSum, kAvg, kMin, kMax, kProd };

// One piece of a ReduceTable: out[e] = op over m < members of element e of contribution m, in this order; contribution
// m is at bases[in_base] + in + m * pitch. A chunk is `chunk_elements` of them.
struct alignas(16) ReduceEntry {
  int64_t in;
  int64_t out;
  int64_t pitch;
  int64_t elements;
  uint32_t in_base;
  uint32_t out_base;
  uint32_t members;
  uint32_t chunk_elements;
  uint32_t dtype;  // a DType
  KernelReduceOp op;
};
static_assert(std::is_trivially_copyable_v<ReduceEntry> && sizeof(ReduceEntry) == 64);

// The last entry whose first chunk is not after `chunk`.
RESHARD_KERNEL_CODE uint32_t EntryOfChunk(const uint32_t* first_chunk, uint32_t entry_count, uint32_t chunk) {
  uint32_t low = 0;  // is not after
  uint32_t high = entry_count;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (first_chunk[middle] <= chunk) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// The largest power of two, at most 16, that divides it.
RESHARD_KERNEL_CODE uint32_t AlignmentOf(uint64_t bits) {
  const auto low = static_cast<uint32_t>(bits) | 16;
  return low & (0 - low);
}

// kBytes bytes that are loaded and stored as one.
template <int kBytes>
struct VectorOfBytes;
template <>
struct VectorOfBytes<1> {
  using Type = uint8_t;
};
template <>
struct VectorOfBytes<2> {
  using Type = uint16_t;
};
template <>
struct VectorOfBytes<4> {
  using Type = uint32_t;
};
template <>
struct VectorOfBytes<8> {
  using Type = uint64_t;
};
template <>
struct VectorOfBytes<16> {
  struct alignas(16) Type {
    uint64_t low;
    uint64_t high;
  };
};
template <int kBytes>
using Vector = typename VectorOfBytes<kBytes>::Type;

// `data` is aligned like a T: a GPU faults where it is not, and so does the host here.
template <typename T>
RESHARD_KERNEL_CODE T LoadAligned(const char* data) {
#ifdef __CUDA_ARCH__
  return *reinterpret_cast<const T*>(data);
#else
  if (reinterpret_cast<uintptr_t>(data) % alignof(T) != 0) std::abort();
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
#endif
}
template <typename T>
RESHARD_KERNEL_CODE void StoreAligned(char* data, T value) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<T*>(data) = value;
#else
  if (reinterpret_cast<uintptr_t>(data) % alignof(T) != 0) std::abort();
  std::memcpy(data, &value, sizeof(T));
#endif
}

}  // namespace reshard::cuda

#endif  // RESHARD_RUNTIME_CUDA_KERNEL_CODE_H_
