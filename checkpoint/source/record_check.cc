#include "checkpoint/source/record_check.h"

#include <libdeflate.h>

#include <algorithm>
#include <utility>

namespace reshard::source {

RecordCheck::RecordCheck(int64_t length, std::optional<uint32_t> crc, std::vector<HashedPart> parts)
    : missing_(length), crc_(crc), parts_(std::move(parts)) {
  if (parts_.empty()) return;
  hasher_ = std::make_unique<hash::ContentHasher>();
  part_left_ = parts_[0].length;
  EndParts();
}

// Compares what is complete, also parts without bytes.
void RecordCheck::EndParts() {
  while (part_ < parts_.size() && part_left_ == 0) {
    bad_hash_ |= hasher_->Finish() != parts_[part_].hash;
    hasher_ = std::make_unique<hash::ContentHasher>();
    if (++part_ < parts_.size()) part_left_ = parts_[part_].length;
  }
}

void RecordCheck::Add(std::string_view bytes) {
  missing_ -= static_cast<int64_t>(bytes.size());
  if (crc_) crc_so_far_ = libdeflate_crc32(crc_so_far_, bytes.data(), bytes.size());
  while (part_ < parts_.size() && !bytes.empty()) {
    const auto here = static_cast<size_t>(std::min(part_left_, static_cast<int64_t>(bytes.size())));
    hasher_->Add(bytes.substr(0, here));
    bytes.remove_prefix(here);
    part_left_ -= static_cast<int64_t>(here);
    EndParts();
  }
}

RecordCheck::Finding RecordCheck::Finish() {
  if (crc_ && crc_so_far_ != *crc_) return Finding::kBadCrc;
  return bad_hash_ ? Finding::kBadHash : Finding::kSame;
}

}  // namespace reshard::source
