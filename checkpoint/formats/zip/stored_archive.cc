#include "checkpoint/formats/zip/stored_archive.h"

#include <libdeflate.h>

#include <cstddef>
#include <utility>

#include "checkpoint/formats/zip/records.h"

namespace reshard::zip {
namespace {

constexpr uint16_t kNameIsUtf8 = 0x0800;
// The tag that PyTorch gives to its padding.
constexpr uint16_t kPadding = 0x4246;

template <size_t kBytes>
void AppendBytes(uint32_t value, std::string* out) {
  char bytes[kBytes];
  for (size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<char>(value >> (8 * i) & 0xFF);
  out->append(bytes, kBytes);
}
void Append16(uint16_t value, std::string* out) { AppendBytes<2>(value, out); }
void Append32(uint32_t value, std::string* out) { AppendBytes<4>(value, out); }

// From "flags" to "length of the name": what both headers have in common. No time, no compression.
void AppendCommon(uint32_t crc, int64_t bytes, size_t name_bytes, std::string* out) {
  Append16(kNameIsUtf8, out);
  Append16(0, out);
  Append32(0, out);
  Append32(crc, out);
  Append32(static_cast<uint32_t>(bytes), out);
  Append32(static_cast<uint32_t>(bytes), out);
  Append16(static_cast<uint16_t>(name_bytes), out);
}

}  // namespace

void StoredArchive::Place(Record* record) {
  record->header_at = records_.empty() ? 0 : records_.back().data_at + records_.back().bytes;
  // The padding field has four bytes of its own.
  const int64_t least = record->header_at + kLocalHeader + static_cast<int64_t>(record->name.size()) + 4;
  record->data_at = (least + kAlignment - 1) / kAlignment * kAlignment;
}

void StoredArchive::Add(std::string_view name, std::string_view content) {
  Record record;
  record.name = stem_ + "/" + std::string(name);
  record.content = std::string(content);
  record.bytes = static_cast<int64_t>(content.size());
  record.crc = libdeflate_crc32(0, content.data(), content.size());
  Place(&record);
  records_.push_back(std::move(record));
}

void StoredArchive::AddLarge(std::string_view name, int64_t bytes) {
  Record record;
  record.name = stem_ + "/" + std::string(name);
  record.bytes = bytes;
  Place(&record);
  records_.push_back(std::move(record));
}

int64_t StoredArchive::bytes() const {
  int64_t total = records_.back().data_at + records_.back().bytes + kEndRecord;
  for (const Record& record : records_) total += kDirectoryEntry + static_cast<int64_t>(record.name.size());
  return total;
}

uint32_t StoredArchive::CrcOf(const Record& record, uint32_t large) const {
  return &record == &records_.back() ? large : record.crc;
}

std::string StoredArchive::Before(uint32_t crc) const {
  std::string out;
  for (const Record& record : records_) {
    Append32(0x04034b50, &out);
    Append16(0, &out);
    AppendCommon(CrcOf(record, crc), record.bytes, record.name.size(), &out);
    const int64_t padding =
        record.data_at - record.header_at - kLocalHeader - static_cast<int64_t>(record.name.size()) - 4;
    Append16(static_cast<uint16_t>(padding + 4), &out);
    out.append(record.name);
    Append16(kPadding, &out);
    Append16(static_cast<uint16_t>(padding), &out);
    out.append(static_cast<size_t>(padding), 'Z');
    out.append(record.content);
  }
  return out;
}

std::string StoredArchive::After(uint32_t crc) const {
  std::string out;
  for (const Record& record : records_) {
    Append32(0x02014b50, &out);
    Append16(0, &out);
    Append16(0, &out);
    AppendCommon(CrcOf(record, crc), record.bytes, record.name.size(), &out);
    Append16(0, &out);  // no extra field,
    Append16(0, &out);  // no comment,
    Append16(0, &out);  // on this disk,
    Append16(0, &out);  // no attributes
    Append32(0, &out);
    Append32(static_cast<uint32_t>(record.header_at), &out);
    out.append(record.name);
  }
  const auto directory = static_cast<uint32_t>(out.size());
  Append32(0x06054b50, &out);
  Append16(0, &out);
  Append16(0, &out);
  Append16(static_cast<uint16_t>(records_.size()), &out);
  Append16(static_cast<uint16_t>(records_.size()), &out);
  Append32(directory, &out);
  Append32(static_cast<uint32_t>(records_.back().data_at + records_.back().bytes), &out);
  Append16(0, &out);
  return out;
}

}  // namespace reshard::zip
