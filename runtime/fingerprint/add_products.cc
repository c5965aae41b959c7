// The loop that all time is spent in.
#include <cstring>

#include "runtime/fingerprint/tensor_sum.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace reshard::fingerprint {
namespace {

// Both factors are below 2^32: nothing of a product is lost.
inline void AddOneByOne(const ChunkRows& chunks, BlockSum* sum) {
  uint64_t low = 0, high = 0;
  const char* bytes = chunks.bytes;
  int64_t first = chunks.first;
  for (int64_t row = 0; row < chunks.rows; ++row, bytes += chunks.step, first += chunks.places) {
    for (int64_t i = 0; i < chunks.count; ++i) {
      uint32_t chunk = 0;
      std::memcpy(&chunk, bytes + i * kChunkBytes, sizeof(chunk));
      low += uint64_t{chunk} * kChunkKeys.low[first + i];
      high += uint64_t{chunk} * kChunkKeys.high[first + i];
    }
  }
  sum->low[0] += low;
  sum->high[0] += high;
}

#if defined(__x86_64__)
#define RESHARD_AVX2 __attribute__((target("avx2"), always_inline)) inline

RESHARD_AVX2 __m256i Load(const void* at) { return _mm256_loadu_si256(static_cast<const __m256i*>(at)); }

// Four lanes each of products with keys for `low` and `high`, of the chunks with even and with odd numbers.
struct Lanes {
  __m256i low, high, low_odd, high_odd;
};

// A multiplication takes the lower halves of 64 bits as they are, so that chunks with even numbers need not be spread
// out.
RESHARD_AVX2 void AddEight(__m256i chunks, __m256i low_keys, __m256i high_keys, Lanes* lanes) {
  const __m256i odd_chunks = _mm256_srli_epi64(chunks, 32);
  lanes->low = _mm256_add_epi64(lanes->low, _mm256_mul_epu32(chunks, low_keys));
  lanes->high = _mm256_add_epi64(lanes->high, _mm256_mul_epu32(chunks, high_keys));
  lanes->low_odd = _mm256_add_epi64(lanes->low_odd, _mm256_mul_epu32(odd_chunks, _mm256_srli_epi64(low_keys, 32)));
  lanes->high_odd = _mm256_add_epi64(lanes->high_odd, _mm256_mul_epu32(odd_chunks, _mm256_srli_epi64(high_keys, 32)));
}

// Within the caches twice as fast as what the compiler makes of the loop above, for AVX2 or without.
__attribute__((target("avx2"))) void AddEightByEight(const ChunkRows& chunks, BlockSum* sum) {
  constexpr int64_t kChunks = 8;
  const __m256i zero = _mm256_setzero_si256();
  Lanes lanes{zero, zero, zero, zero};
  // The first `rest` of eight: what is behind the last chunk counts as zero and is not read.
  const int64_t rest = chunks.count % kChunks;
  const __m256i of_rest =
      _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(rest)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const char* bytes = chunks.bytes;
  const uint32_t* low_keys = kChunkKeys.low + chunks.first;
  const uint32_t* high_keys = kChunkKeys.high + chunks.first;
  for (int64_t row = 0; row < chunks.rows; ++row) {
    int64_t i = 0;
#pragma GCC unroll 2
    for (; i + kChunks <= chunks.count; i += kChunks) {
      AddEight(Load(bytes + i * kChunkBytes), Load(low_keys + i), Load(high_keys + i), &lanes);
    }
    if (rest != 0) {
      AddEight(_mm256_maskload_epi32(reinterpret_cast<const int*>(bytes + i * kChunkBytes), of_rest),
               _mm256_maskload_epi32(reinterpret_cast<const int*>(low_keys + i), of_rest),
               _mm256_maskload_epi32(reinterpret_cast<const int*>(high_keys + i), of_rest), &lanes);
    }
    bytes += chunks.step;
    low_keys += chunks.places;
    high_keys += chunks.places;
  }
  // Last, when what was there before is in the cache and need not be waited for.
  const auto add = [](__m256i more, uint64_t * to) __attribute__((target("avx2"))) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm256_add_epi64(Load(to), more));
  };
  add(_mm256_add_epi64(lanes.low, lanes.low_odd), sum->low);
  add(_mm256_add_epi64(lanes.high, lanes.high_odd), sum->high);
}
#undef RESHARD_AVX2
#endif

}  // namespace

void AddProducts(const ChunkRows& chunks, BlockSum* sum) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return AddEightByEight(chunks, sum);
#endif
  AddOneByOne(chunks, sum);
}

}  // namespace reshard::fingerprint
