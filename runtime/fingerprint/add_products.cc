// The loop that all time is spent in.
#include <cassert>
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

// The places of the chunks of a row in its block.
struct Places {
  explicit Places(const Columns& columns)
      : first(columns.offset % kBlockBytes / kChunkBytes), count(columns.columns * columns.element / kChunkBytes) {}
  int64_t first;
  int64_t count;
};

void AddOneByOne(const Columns& columns, ContentFingerprint* sums) {
  const int64_t of_chunk = kChunkBytes / columns.element;
  const Places places(columns);
  for (int64_t i = 0; i < places.count; ++i) {
    const char* const bytes = columns.bytes + i * of_chunk * columns.step;
    for (int64_t row = 0; row < columns.rows; ++row) {
      char chunk_bytes[kChunkBytes];
      for (int64_t c = 0; c < of_chunk; ++c) {
        std::memcpy(chunk_bytes + c * columns.element, bytes + c * columns.step + row * columns.element,
                    static_cast<size_t>(columns.element));
      }
      uint32_t chunk = 0;
      std::memcpy(&chunk, chunk_bytes, sizeof(chunk));
      sums[row] +=
          {uint64_t{chunk} * kChunkKeys.low[places.first + i], uint64_t{chunk} * kChunkKeys.high[places.first + i]};
    }
  }
}

#if defined(__x86_64__)
#define RESHARD_AVX2 __attribute__((target("avx2"), always_inline)) inline

RESHARD_AVX2 __m256i Load(const void* at) { return _mm256_loadu_si256(static_cast<const __m256i*>(at)); }

// Four lanes each of products with keys for `low` and `high`, of the chunks with even and with odd numbers.
struct Lanes {
  __m256i low, high, low_odd, high_odd;
};

// Keys of eight chunks: those of odd chunks are in the lower halves of 64 bits, too.
struct Keys {
  __m256i low, high, low_odd, high_odd;
};

// A multiplication takes the lower halves of 64 bits as they are, so that chunks with even numbers need not be spread
// out.
RESHARD_AVX2 void AddEight(__m256i chunks, const Keys& keys, Lanes* lanes) {
  const __m256i odd_chunks = _mm256_srli_epi64(chunks, 32);
  lanes->low = _mm256_add_epi64(lanes->low, _mm256_mul_epu32(chunks, keys.low));
  lanes->high = _mm256_add_epi64(lanes->high, _mm256_mul_epu32(chunks, keys.high));
  lanes->low_odd = _mm256_add_epi64(lanes->low_odd, _mm256_mul_epu32(odd_chunks, keys.low_odd));
  lanes->high_odd = _mm256_add_epi64(lanes->high_odd, _mm256_mul_epu32(odd_chunks, keys.high_odd));
}

RESHARD_AVX2 Keys KeysOfEight(__m256i low, __m256i high) {
  return {low, high, _mm256_srli_epi64(low, 32), _mm256_srli_epi64(high, 32)};
}

constexpr int64_t kEight = 8;

// Within the caches twice as fast as what the compiler makes of the loop above, for AVX2 or without.
__attribute__((target("avx2"))) void AddEightByEight(const ChunkRows& chunks, BlockSum* sum) {
  const __m256i zero = _mm256_setzero_si256();
  Lanes lanes{zero, zero, zero, zero};
  // The first `rest` of eight: what is behind the last chunk counts as zero and is not read.
  const int64_t rest = chunks.count % kEight;
  const __m256i of_rest =
      _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(rest)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const char* bytes = chunks.bytes;
  const uint32_t* low_keys = kChunkKeys.low + chunks.first;
  const uint32_t* high_keys = kChunkKeys.high + chunks.first;
  for (int64_t row = 0; row < chunks.rows; ++row) {
    int64_t i = 0;
#pragma GCC unroll 2
    for (; i + kEight <= chunks.count; i += kEight) {
      AddEight(Load(bytes + i * kChunkBytes), KeysOfEight(Load(low_keys + i), Load(high_keys + i)), &lanes);
    }
    if (rest != 0) {
      AddEight(_mm256_maskload_epi32(reinterpret_cast<const int*>(bytes + i * kChunkBytes), of_rest),
               KeysOfEight(_mm256_maskload_epi32(reinterpret_cast<const int*>(low_keys + i), of_rest),
                           _mm256_maskload_epi32(reinterpret_cast<const int*>(high_keys + i), of_rest)),
               &lanes);
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

// One chunk of each of eight rows; a chunk spans kChunkBytes / kElement columns.
template <int64_t kElement>
RESHARD_AVX2 __m256i EightRows(const char* at, int64_t step) {
  if constexpr (kElement == 4) return Load(at);
  if constexpr (kElement == 2) {
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + step));
    return _mm256_set_m128i(_mm_unpackhi_epi16(a, b), _mm_unpacklo_epi16(a, b));
  }
  if constexpr (kElement == 1) {
    const auto pair = [step](const char* from) __attribute__((target("avx2"))) {
      return _mm_unpacklo_epi8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)),
                               _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + step)));
    };
    const __m128i a = pair(at), b = pair(at + 2 * step);
    return _mm256_set_m128i(_mm_unpackhi_epi16(a, b), _mm_unpacklo_epi16(a, b));
  }
}

// Adds chunks i, i + 1, .. of all rows. Rows share the key of a chunk, so the keys are loaded once for all rows.
template <int64_t kElement, int kChunksAtOnce>
RESHARD_AVX2 void AddEightRows(const Columns& columns, int64_t i, Lanes* lanes) {
  constexpr int64_t kOfChunk = kChunkBytes / kElement;
  const int64_t place = Places(columns).first + i;
  Keys keys[kChunksAtOnce];
  for (int k = 0; k < kChunksAtOnce; ++k) {
    const __m256i low = _mm256_set1_epi64x(kChunkKeys.low[place + k]);
    const __m256i high = _mm256_set1_epi64x(kChunkKeys.high[place + k]);
    keys[k] = {low, high, low, high};
  }
  const char* bytes = columns.bytes + i * kOfChunk * columns.step;
  for (int64_t row = 0; row + kEight <= columns.rows; row += kEight, bytes += kEight * kElement) {
    Lanes sums = lanes[row / kEight];
    for (int k = 0; k < kChunksAtOnce; ++k) {
      AddEight(EightRows<kElement>(bytes + k * kOfChunk * columns.step, columns.step), keys[k], &sums);
    }
    lanes[row / kEight] = sums;
  }
}

template <int64_t kElement>
__attribute__((target("avx2"))) void AddEightRowsEach(const Columns& columns, ContentFingerprint* sums) {
  // As many keys as there are registers left.
  constexpr int kChunksAtOnce = kElement == 1 ? 2 : 4;
  constexpr int64_t kGroups = kRowsOfColumns / kEight;
  Lanes lanes[kGroups];
  const int64_t groups = columns.rows / kEight, count = Places(columns).count;
  std::memset(static_cast<void*>(lanes), 0, static_cast<size_t>(groups) * sizeof(Lanes));
  int64_t i = 0;
  for (; i + kChunksAtOnce <= count; i += kChunksAtOnce) AddEightRows<kElement, kChunksAtOnce>(columns, i, lanes);
  for (; i < count; ++i) AddEightRows<kElement, 1>(columns, i, lanes);
  for (int64_t group = 0; group < groups; ++group) {
    uint64_t low[2][kEight / 2], high[2][kEight / 2];
    std::memcpy(low[0], &lanes[group].low, sizeof(low[0]));
    std::memcpy(low[1], &lanes[group].low_odd, sizeof(low[1]));
    std::memcpy(high[0], &lanes[group].high, sizeof(high[0]));
    std::memcpy(high[1], &lanes[group].high_odd, sizeof(high[1]));
    for (int64_t row = 0; row < kEight; ++row) {
      sums[group * kEight + row] += {low[row % 2][row / 2], high[row % 2][row / 2]};
    }
  }
  Columns rest = columns;
  rest.rows = columns.rows % kEight;
  rest.bytes += groups * kEight * kElement;
  AddOneByOne(rest, sums + groups * kEight);
}
#undef RESHARD_AVX2
#endif

}  // namespace

void AddProducts(const ChunkRows& chunks, BlockSum* sum) {
  assert(chunks.rows == 0 || chunks.first + (chunks.rows - 1) * chunks.places + chunks.count <= kBlockChunks);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return AddEightByEight(chunks, sum);
#endif
  AddOneByOne(chunks, sum);
}

void AddProducts(const Columns& columns, ContentFingerprint* sums) {
  assert(columns.rows <= kRowsOfColumns &&
         columns.offset % kBlockBytes + columns.columns * columns.element <= kBlockBytes);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    if (columns.element == 1) return AddEightRowsEach<1>(columns, sums);
    if (columns.element == 2) return AddEightRowsEach<2>(columns, sums);
    return AddEightRowsEach<4>(columns, sums);
  }
#endif
  AddOneByOne(columns, sums);
}

}  // namespace reshard::fingerprint
