// Zip archives put together by hand, right or wrong: every field of both headers of a record and of the end can be set
// to something else than what is true.
#ifndef RESHARD_TESTS_CHECKPOINT_FORMATS_ZIP_BYTES_H_
#define RESHARD_TESTS_CHECKPOINT_FORMATS_ZIP_BYTES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/checkpoint/formats/pickle_bytes.h"

namespace reshard::testing {

// CRC-32 by its definition, bit by bit.
inline uint32_t Crc32(std::string_view text) {
  uint32_t crc = 0xffffffff;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

struct ZipRecord {
  std::string name;
  std::string content;

  // What the headers say instead of the truth.
  std::optional<uint32_t> crc = {};
  uint16_t method = 0;
  uint16_t flags = 0;
  std::optional<uint64_t> length = {};         // in both headers
  std::optional<uint64_t> stored_length = {};  // in the directory: the compressed size
  std::optional<uint64_t> header_at = {};      // in the directory
  std::optional<std::string> local_name = {};  // in the local header
  std::optional<uint16_t> local_extra = {};    // the length of extra fields in the local header; none are written
  std::string extra = {};                      // in the directory
  std::string after = {};                      // bytes after the payload
  uint16_t disk = 0;
};

struct ZipEnd {
  std::optional<uint64_t> count = {}, count_here = {}, directory_at = {}, directory_bytes = {};
  uint16_t disk = 0;
  std::string comment = {};
  uint16_t comment_bytes = 0;
  // The zip64 records: written when `zip64` is set.
  bool zip64 = false;
  std::optional<uint64_t> count64 = {}, directory_at64 = {}, directory_bytes64 = {}, end64_at = {};
};

inline std::string ZipBytes(const std::vector<ZipRecord>& records, const ZipEnd& end = {}) {
  using pickled::Little;
  std::string out, directory;
  for (const ZipRecord& record : records) {
    const uint64_t at = out.size();
    const uint32_t crc = record.crc.value_or(Crc32(record.content));
    const uint64_t length = record.length.value_or(record.content.size());
    const std::string local_name = record.local_name.value_or(record.name);
    out += "PK\x03\x04" + Little(0, 2) + Little(record.flags, 2) + Little(record.method, 2) + Little(0, 4) +
           Little(crc, 4) + Little(length, 4) + Little(length, 4) + Little(local_name.size(), 2) +
           Little(record.local_extra.value_or(0), 2) + local_name + record.content + record.after;
    directory += "PK\x01\x02" + Little(0, 4) + Little(record.flags, 2) + Little(record.method, 2) + Little(0, 4) +
                 Little(crc, 4) + Little(record.stored_length.value_or(length), 4) + Little(length, 4) +
                 Little(record.name.size(), 2) + Little(record.extra.size(), 2) + Little(0, 2) +
                 Little(record.disk, 2) + Little(0, 6) + Little(record.header_at.value_or(at), 4) + record.name +
                 record.extra;
  }
  const uint64_t at = out.size();
  out += directory;
  if (end.zip64) {
    const uint64_t end64 = out.size();
    const uint64_t count = end.count64.value_or(records.size());
    out += "PK\x06\x06" + Little(44, 8) + Little(0, 12) + Little(count, 8) + Little(count, 8) +
           Little(end.directory_bytes64.value_or(directory.size()), 8) + Little(end.directory_at64.value_or(at), 8);
    out += "PK\x06\x07" + Little(0, 4) + Little(end.end64_at.value_or(end64), 8) + Little(1, 4);
  }
  const uint64_t count = end.count.value_or(records.size());
  return out + "PK\x05\x06" + Little(end.disk, 2) + Little(end.disk, 2) + Little(end.count_here.value_or(count), 2) +
         Little(count, 2) + Little(end.directory_bytes.value_or(directory.size()), 4) +
         Little(end.directory_at.value_or(at), 4) + Little(end.comment_bytes, 2) + end.comment;
}

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_CHECKPOINT_FORMATS_ZIP_BYTES_H_
