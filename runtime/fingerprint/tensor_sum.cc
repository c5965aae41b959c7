#include "runtime/fingerprint/tensor_sum.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace reshard::fingerprint {
namespace {

// A bijection; the finalizer of SplitMix64.
constexpr uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

constexpr uint64_t kLowStep = 0x9E3779B97F4A7C15ull;
constexpr uint64_t kHighStep = 0xD1B54A32D192ED03ull;

constexpr ChunkKeys MakeChunkKeys() {
  ChunkKeys keys{};
  for (int64_t i = 0; i < kBlockChunks; ++i) {
    const auto number = static_cast<uint64_t>(i + 1);
    keys.low[i] = static_cast<uint32_t>(Mix(number * kLowStep) >> 32) | 1u;
    keys.high[i] = static_cast<uint32_t>(Mix(number * kHighStep) >> 32) | 1u;
  }
  return keys;
}

void AddTimes(const ContentFingerprint& sum, const ContentFingerprint& key, ContentFingerprint* to) {
  to->low += sum.low * key.low;
  to->high += sum.high * key.high;
}

}  // namespace

constexpr ChunkKeys kChunkKeys = MakeChunkKeys();

Fingerprint IdentityOf(std::string_view name, DType dtype, absl::Span<const int64_t> shape) {
  return Signature({{"name", std::string(name)},
                    {"dtype", std::string(Name(dtype))},
                    {"shape", absl::StrCat("[", absl::StrJoin(shape, ", "), "]")}})
      .fingerprint;
}

void TensorSum::AddInBlock(const char* bytes, int64_t at, int64_t size) {
  const auto add_part = [this](const char* part, int64_t place, int64_t count) {
    uint32_t chunk = 0;
    for (int64_t i = 0; i < count; ++i) {
      chunk |= static_cast<uint32_t>(static_cast<unsigned char>(part[i])) << (8 * (place % kChunkBytes + i));
    }
    within_.low[0] += uint64_t{chunk} * kChunkKeys.low[place / kChunkBytes];
    within_.high[0] += uint64_t{chunk} * kChunkKeys.high[place / kChunkBytes];
  };
  if (at % kChunkBytes != 0) {
    const int64_t head = std::min(size, kChunkBytes - at % kChunkBytes);
    add_part(bytes, at, head);
    bytes += head;
    at += head;
    size -= head;
  }
  const int64_t whole = size / kChunkBytes;
  AddProducts({bytes, at / kChunkBytes, whole}, &within_);
  const int64_t tail = size % kChunkBytes;
  if (tail != 0) add_part(bytes + whole * kChunkBytes, at + whole * kChunkBytes, tail);
}

void TensorSum::MoveTo(int64_t block) {
  if (block == block_) return;
  AddTimes(within_.sum(), KeyOf(block_), &done_);
  within_ = {};
  block_ = block;
}

void TensorSum::Add(const char* bytes, int64_t offset, int64_t size) {
  while (size > 0) {
    MoveTo(offset / kBlockBytes);
    const int64_t at = offset % kBlockBytes;
    const int64_t here = std::min(size, kBlockBytes - at);
    AddInBlock(bytes, at, here);
    bytes += here;
    offset += here;
    size -= here;
  }
}

void TensorSum::Add(const Runs& runs) {
  if (runs.size == 0) return;
  const bool whole_chunks = (runs.offset | runs.size | runs.offset_step) % kChunkBytes == 0;
  const char* bytes = runs.bytes;
  int64_t offset = runs.offset;
  for (int64_t done = 0; done < runs.count;) {
    const int64_t at = offset % kBlockBytes, room = kBlockBytes - at - runs.size;
    int64_t rows = 1;
    if (!whole_chunks || room < 0) {
      Add(bytes, offset, runs.size);
    } else {
      if (runs.count > 1 && runs.offset_step <= room) rows = std::min(runs.count - done, room / runs.offset_step + 1);
      MoveTo(offset / kBlockBytes);
      AddProducts({bytes, at / kChunkBytes, runs.size / kChunkBytes, rows, runs.step, runs.offset_step / kChunkBytes},
                  &within_);
    }
    done += rows;
    bytes += rows * runs.step;
    offset += rows * runs.offset_step;
  }
}

void TensorSum::AddInBlocks(const Columns& columns) {
  ContentFingerprint sums[kRowsOfColumns];
  for (int64_t row = 0; row < columns.rows; row += kRowsOfColumns) {
    const int64_t rows = std::min(kRowsOfColumns, columns.rows - row);
    std::fill_n(sums, rows, ContentFingerprint{});
    Columns part = columns;
    part.bytes += row * columns.element;
    part.rows = rows;
    AddProducts(part, sums);
    const int64_t block = (columns.offset + row * columns.offset_step) / kBlockBytes;
    for (int64_t i = 0; i < rows; ++i) AddTimes(sums[i], KeyOf(block + i * columns.offset_step / kBlockBytes), &done_);
  }
}

void TensorSum::Add(const Columns& columns) {
  Columns within = columns;
  for (int64_t done = 0; done < columns.columns; done += within.columns) {
    const int64_t room = (kBlockBytes - within.offset % kBlockBytes) / columns.element;
    within.columns = std::min(room, columns.columns - done);
    AddInBlocks(within);
    within.bytes += within.columns * columns.step;
    within.offset += within.columns * columns.element;
  }
}

void TensorSum::AddIdentity() { done_ += {Mix(identity_.low + kHighStep), Mix(identity_.high + kLowStep)}; }

ContentFingerprint TensorSum::sum() const {
  ContentFingerprint all = done_;
  AddTimes(within_.sum(), KeyOf(block_), &all);
  return all;
}

ContentFingerprint TensorSum::KeyOf(int64_t block) const {
  const auto number = static_cast<uint64_t>(block) + 1;
  return {Mix(identity_.low + number * kLowStep) | 1, Mix(identity_.high + number * kHighStep) | 1};
}

}  // namespace reshard::fingerprint
