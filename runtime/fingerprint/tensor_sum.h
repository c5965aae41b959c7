// The sums behind fingerprints, over the bytes of one tensor, in whatever pieces these come. Why they detect what they
// detect: docs/design/fingerprint.md.
#ifndef RESHARD_RUNTIME_FINGERPRINT_TENSOR_SUM_H_
#define RESHARD_RUNTIME_FINGERPRINT_TENSOR_SUM_H_

#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "reshard/layout/dtype.h"
#include "reshard/runtime/fingerprint.h"
#include "reshard/runtime/signature.h"

namespace reshard::fingerprint {

// The bytes of a tensor, row-major and without gaps, are chunks of 4 bytes, the last one filled up with zeros; these
// form blocks.
inline constexpr int64_t kChunkBytes = 4;
inline constexpr int64_t kBlockChunks = 1024;
inline constexpr int64_t kBlockBytes = kBlockChunks * kChunkBytes;

// What the chunk at each place of a block is multiplied by, in `low` and in `high`: odd numbers, all different.
struct ChunkKeys {
  uint32_t low[kBlockChunks];
  uint32_t high[kBlockChunks];
};
extern const ChunkKeys kChunkKeys;

// A sum of products within a block, not yet added up: it does not matter which lane a summand is in. Adding up the
// lanes takes longer than a short run of chunks.
struct BlockSum {
  static constexpr int kLanes = 4;
  alignas(32) uint64_t low[kLanes] = {};
  alignas(32) uint64_t high[kLanes] = {};

  ContentFingerprint sum() const { return {low[0] + low[1] + low[2] + low[3], high[0] + high[1] + high[2] + high[3]}; }
};

// Chunks of one block in rows of `count` chunks, at places first, first + 1, .. of the block; every row begins `step`
// bytes after the one before in memory, and `places` later in the block. `bytes` need not be aligned.
struct ChunkRows {
  const char* bytes = nullptr;
  int64_t first = 0;
  int64_t count = 0;
  int64_t rows = 1;
  int64_t step = 0;
  int64_t places = 0;
};

// sum += the products of all chunks with their keys. Requires that the last place is below kBlockChunks.
void AddProducts(const ChunkRows& chunks, BlockSum* sum);

// Runs of consecutive bytes of a tensor: `count` runs of `size` bytes, the first of them at `offset`. Every run begins
// `step` bytes after the one before in memory, and `offset_step` >= size bytes later in the tensor.
struct Runs {
  const char* bytes = nullptr;
  int64_t offset = 0;
  int64_t size = 0;
  int64_t count = 0;
  int64_t step = 0;
  int64_t offset_step = 0;
};

// A matrix of elements of 1, 2 or 4 bytes that lies in memory by columns: those of a column one after the other, and
// every column `step` bytes after the one before. Rows are consecutive in the tensor, the first of them at `offset`,
// each `offset_step` bytes after the one before: a multiple of kBlockBytes. Rows begin and end with chunks.
struct Columns {
  const char* bytes = nullptr;
  int64_t element = 0;
  int64_t offset = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t step = 0;
  int64_t offset_step = 0;
};

// Number of rows whose sums fit in the nearest cache.
inline constexpr int64_t kRowsOfColumns = 1024;
// sums[r] += the products of the chunks of row r with their keys: at the same places of each block, so that rows need
// not be brought together. Requires at most kRowsOfColumns rows, each within one block.
void AddProducts(const Columns& columns, ContentFingerprint* sums);

// What tells tensors apart: their names, dtypes and global shapes.
Fingerprint IdentityOf(std::string_view name, DType dtype, absl::Span<const int64_t> shape);

// State: the sum over the bytes added so far, of each block's sum times a key of tensor and block.
class TensorSum {
 public:
  // `identity`: the tensor's IdentityOf.
  explicit TensorSum(const Fingerprint& identity) : identity_(identity) {}

  // Adds the bytes [offset, offset + size) of the tensor. Every byte of a tensor is to be added once; where a piece
  // begins and ends, and in which order they come, makes no difference. Fast where pieces ascend.
  void Add(const char* bytes, int64_t offset, int64_t size);
  // Adds the bytes of all runs; for short ones much faster than one call for each.
  void Add(const Runs& runs);
  // Adds the elements of all columns, in the order in which they lie in memory.
  void Add(const Columns& columns);
  // Adds the part that even a tensor without elements has. Call it once per tensor.
  void AddIdentity();
  // Of everything added so far.
  ContentFingerprint sum() const;

 private:
  // The key of a block, an odd number.
  ContentFingerprint KeyOf(int64_t block) const;
  // Adds columns that are within one block of each row.
  void AddInBlocks(const Columns& columns);
  // If `block` is not the current block, adds the sum within the current one and makes `block` the current one.
  void MoveTo(int64_t block);
  void AddInBlock(const char* bytes, int64_t at, int64_t size);

  Fingerprint identity_;
  ContentFingerprint done_;  // blocks before the current one
  BlockSum within_;          // of the current block, not yet times its key
  int64_t block_ = 0;        // the current one
};

}  // namespace reshard::fingerprint

#endif  // RESHARD_RUNTIME_FINGERPRINT_TENSOR_SUM_H_
