// What is kept of the contents of a piece to know them again: the CRC-32 that archives have, and the sidecar's hash.
#ifndef RESHARD_CHECKPOINT_JOB_CONTENT_SUMS_H_
#define RESHARD_CHECKPOINT_JOB_CONTENT_SUMS_H_

#include <cstdint>
#include <string_view>

#include "checkpoint/job/hash.h"

namespace reshard {

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

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_JOB_CONTENT_SUMS_H_
