// The checksums of the contents of a piece: the CRC-32 that archives have, and the sidecar's hash.
#ifndef RESHARD_CHECKPOINT_HASH_CONTENT_SUMS_H_
#define RESHARD_CHECKPOINT_HASH_CONTENT_SUMS_H_

#include <cstdint>
#include <string_view>

#include "checkpoint/hash/hash.h"

namespace reshard::hash {

// Of bytes that come one after the other.
class ContentSums {
 public:
  void Add(std::string_view bytes);
  uint32_t crc() const { return crc_; }
  ContentHash hash() const { return hasher_.Finish(); }

 private:
  uint32_t crc_ = 0;
  ContentHasher hasher_;
};

}  // namespace reshard::hash

#endif  // RESHARD_CHECKPOINT_HASH_CONTENT_SUMS_H_
