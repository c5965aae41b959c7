// A hash of a sequence of numbers and texts. It tells apart sequences that differ only in where their parts begin.
#ifndef RESHARD_CHECKPOINT_HASH_DIGEST_H_
#define RESHARD_CHECKPOINT_HASH_DIGEST_H_

#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "checkpoint/hash/hash.h"

namespace reshard::hash {

class Digest {
 public:
  void Add(int64_t value) { hasher_.Add({reinterpret_cast<const char*>(&value), sizeof(value)}); }
  void Add(absl::Span<const int64_t> values) {
    for (const int64_t value : values) Add(value);
  }
  void Add(std::string_view text) {
    Add(static_cast<int64_t>(text.size()));
    hasher_.Add(text);
  }
  ContentHash Hash() const { return hasher_.Finish(); }

 private:
  ContentHasher hasher_;
};

}  // namespace reshard::hash

#endif  // RESHARD_CHECKPOINT_HASH_DIGEST_H_
