// Compares the bytes of a record with what is known of them.
#ifndef RESHARD_CHECKPOINT_SOURCE_RECORD_CHECK_H_
#define RESHARD_CHECKPOINT_SOURCE_RECORD_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "checkpoint/hash/hash.h"

namespace reshard::source {

// State: the bytes of a record that were added so far.
class RecordCheck {
 public:
  // Bytes of the record that have a hash; parts come one after the other.
  struct HashedPart {
    int64_t length = 0;
    hash::ContentHash hash;
  };
  enum class Finding { kSame, kBadCrc, kBadHash };

  // For a record of `length` bytes: its CRC-32, if that is known, and the hashes of all its parts, or none.
  RecordCheck(int64_t length, std::optional<uint32_t> crc, std::vector<HashedPart> parts);

  bool knows_anything() const { return crc_.has_value() || !parts_.empty(); }
  // Adds the next bytes of the record, which must have that many left.
  void Add(std::string_view bytes);
  // Whether all bytes have been added.
  bool is_complete() const { return missing_ == 0; }
  // Requires that the record is complete.
  Finding Finish();

 private:
  void EndParts();

  int64_t missing_;
  std::optional<uint32_t> crc_;
  std::vector<HashedPart> parts_;
  uint32_t crc_so_far_ = 0;
  size_t part_ = 0;        // the one that the next byte belongs to
  int64_t part_left_ = 0;  // its bytes that are still to come
  std::unique_ptr<hash::ContentHasher> hasher_;
  bool bad_hash_ = false;
};

}  // namespace reshard::source

#endif  // RESHARD_CHECKPOINT_SOURCE_RECORD_CHECK_H_
