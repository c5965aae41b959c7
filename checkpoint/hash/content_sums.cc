#include "checkpoint/hash/content_sums.h"

#include <libdeflate.h>

namespace reshard::hash {

void ContentSums::Add(std::string_view bytes) {
  // Computes both sums of a block while it is in the nearest caches, so memory is read once.
  constexpr size_t kBlock = size_t{32} << 10;
  for (size_t at = 0; at < bytes.size(); at += kBlock) {
    const std::string_view block = bytes.substr(at, kBlock);
    crc_ = libdeflate_crc32(crc_, block.data(), block.size());
    hasher_.Add(block);
  }
}

}  // namespace reshard::hash
