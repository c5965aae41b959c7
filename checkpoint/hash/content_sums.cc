#include "checkpoint/hash/content_sums.h"

#include <libdeflate.h>

namespace reshard::hash {

void ContentSums::Add(std::string_view bytes) {
  crc_ = libdeflate_crc32(crc_, bytes.data(), bytes.size());
  hasher_.Add(bytes);
}

}  // namespace reshard::hash
