#include "checkpoint/formats/zip/reader.h"

#include <libdeflate.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/formats/zip/records.h"
#include "checkpoint/io/show.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::zip {
namespace {

constexpr int64_t kEnd = 4096;  // read at either end
constexpr size_t kLongestName = 4096;
constexpr int64_t kCheckedAtOnce = int64_t{256} << 10;

// Lengths of the records that only large archives have, and the four bytes that each record begins with.
constexpr int64_t kEndRecord64 = 56;
constexpr int64_t kLocator64 = 20;
constexpr uint32_t kLocalHeaderMark = 0x04034b50;
constexpr uint32_t kDirectoryEntryMark = 0x02014b50;
constexpr uint32_t kEndRecordMark = 0x06054b50;
constexpr uint32_t kEndRecord64Mark = 0x06064b50;
constexpr uint32_t kLocator64Mark = 0x07064b50;
// In a field of 32 (16) bits: the zip64 record has it.
constexpr uint32_t kElsewhere = 0xffffffff;
constexpr uint16_t kElsewhere16 = 0xffff;
constexpr uint16_t kExtra64 = 1;
constexpr uint16_t kEncrypted = 1 << 0 | 1 << 6 | 1 << 13;  // plainly, strongly, the directory
constexpr uint16_t kSizesFollow = 1 << 3;
constexpr uint16_t kDeflated = 8;  // a method; 0: not compressed

// Little-endian numbers at a place of a text; the caller has checked the length.
template <typename T>
T NumberAt(std::string_view text, size_t at) {
  T number;
  std::memcpy(&number, text.data() + at, sizeof(T));
  return number;
}

// Takes the 64-bit number that stands for `*field` out of a zip64 extra field, if it stands elsewhere.
bool TakeFrom64(std::string_view* extra, int64_t* field) {
  if (*field != kElsewhere) return true;
  if (extra->size() < 8) return false;
  *field = NumberAt<int64_t>(*extra, 0);
  extra->remove_prefix(8);
  return *field >= 0;
}

// The content of the zip64 field among extra fields; empty when there is none or they are broken.
std::string_view Find64(std::string_view extra) {
  while (extra.size() >= 4) {
    const size_t length = NumberAt<uint16_t>(extra, 2);
    if (length > extra.size() - 4) return {};
    if (NumberAt<uint16_t>(extra, 0) == kExtra64) return extra.substr(4, length);
    extra.remove_prefix(4 + length);
  }
  return {};
}

}  // namespace

absl::Status ZipArchive::Bad(std::string_view what) const {
  return absl::DataLossError(absl::StrCat(file_->path(), ", bytes ", at_, " + ", length_, ": ", status::View(what)));
}

absl::Status ZipArchive::ReadAt(int64_t at, absl::Span<char> out) const {
  const auto size = static_cast<int64_t>(out.size());
  if (at < 0 || at > length_ || size > length_ - at) return Bad("the archive refers to bytes beyond it");
  const int64_t tail_at = length_ - static_cast<int64_t>(tail_.size());
  if (size <= static_cast<int64_t>(head_.size()) && at <= static_cast<int64_t>(head_.size()) - size) {
    std::memcpy(out.data(), head_.data() + at, out.size());
  } else if (at >= tail_at) {
    std::memcpy(out.data(), tail_.data() + (at - tail_at), out.size());
  } else {
    return file_->ReadAt(at_ + at, out);
  }
  return absl::OkStatus();
}

absl::Status ZipArchive::ReadEnds() {
  const bool all = length_ <= 2 * kEnd;
  tail_.resize(all ? length_ : kEnd);
  const int64_t tail_at = length_ - static_cast<int64_t>(tail_.size());
  if (absl::Status read = file_->ReadAt(at_ + tail_at, absl::MakeSpan(tail_)); !read.ok() || all) return read;
  head_.resize(kEnd);
  return file_->ReadAt(at_, absl::MakeSpan(head_));
}

absl::Status ZipArchive::ReadDirectory(int64_t most_directory) {
  if (length_ < kEndRecord) return Bad("not a zip archive: too short");
  std::string end(kEndRecord, '\0');
  RETURN_IF_ERROR(ReadAt(length_ - kEndRecord, absl::MakeSpan(end)));
  if (NumberAt<uint32_t>(end, 0) != kEndRecordMark || NumberAt<uint16_t>(end, 20) != 0) {
    return Bad("not a zip archive: it does not end with an end record");
  }
  int64_t directory_end = length_ - kEndRecord;
  int64_t count = NumberAt<uint16_t>(end, 10);
  int64_t size = NumberAt<uint32_t>(end, 12);
  int64_t at = NumberAt<uint32_t>(end, 16);
  bool one_disk =
      NumberAt<uint16_t>(end, 4) == 0 && NumberAt<uint16_t>(end, 6) == 0 && NumberAt<uint16_t>(end, 8) == count;

  std::string locator(kLocator64, '\0');
  if (directory_end >= kLocator64) {
    RETURN_IF_ERROR(ReadAt(directory_end - kLocator64, absl::MakeSpan(locator)));
  }
  if (NumberAt<uint32_t>(locator, 0) == kLocator64Mark) {
    const auto at64 = NumberAt<int64_t>(locator, 8);
    if (at64 < 0 || at64 > directory_end - kLocator64 - kEndRecord64) return Bad("the zip64 end record lies outside");
    std::string end64(kEndRecord64, '\0');
    RETURN_IF_ERROR(ReadAt(at64, absl::MakeSpan(end64)));
    if (NumberAt<uint32_t>(end64, 0) != kEndRecord64Mark) return Bad("no zip64 end record where one is expected");
    const auto count64 = NumberAt<int64_t>(end64, 32);
    const auto size64 = NumberAt<int64_t>(end64, 40);
    const auto directory64 = NumberAt<int64_t>(end64, 48);
    one_disk = one_disk && NumberAt<uint32_t>(locator, 4) == 0 && NumberAt<uint32_t>(locator, 16) <= 1 &&
               NumberAt<uint32_t>(end64, 16) == 0 && NumberAt<uint32_t>(end64, 20) == 0 &&
               NumberAt<int64_t>(end64, 24) == count64;
    if ((count != kElsewhere16 && count != count64) || (size != kElsewhere && size != size64) ||
        (at != kElsewhere && at != directory64)) {
      return Bad("the two end records disagree");
    }
    directory_end = at64;
    count = count64;
    size = size64;
    at = directory64;
  }
  if (!one_disk) return absl::UnimplementedError(Bad("a part of an archive of several disks").message());
  if (size < 0 || at < 0 || size > directory_end || at != directory_end - size) {
    return Bad("the directory is not where the end record says");
  }
  if (size > most_directory) {
    return absl::ResourceExhaustedError(
        Bad(absl::StrCat("a directory of ", size, " bytes; at most ", most_directory, " are allowed")).message());
  }
  std::string directory;
  if (size <= kEnd) {
    directory.resize(size);
    RETURN_IF_ERROR(ReadAt(at, absl::MakeSpan(directory)));
  } else {
    ASSIGN_OR_RETURN(directory, file_->ReadText(at_ + at, size));
  }

  std::string_view rest = directory;
  while (!rest.empty()) {
    if (rest.size() < kDirectoryEntry || NumberAt<uint32_t>(rest, 0) != kDirectoryEntryMark) {
      return Bad("the directory is broken");
    }
    const auto flags = NumberAt<uint16_t>(rest, 8);
    const auto method = NumberAt<uint16_t>(rest, 10);
    const size_t name_length = NumberAt<uint16_t>(rest, 28);
    const size_t extra_length = NumberAt<uint16_t>(rest, 30);
    const size_t comment_length = NumberAt<uint16_t>(rest, 32);
    const size_t entry_length = kDirectoryEntry + name_length + extra_length + comment_length;
    if (entry_length > rest.size() || name_length > kLongestName) return Bad("the directory is broken");
    Record record;
    record.name = std::string(rest.substr(kDirectoryEntry, name_length));
    record.crc32 = NumberAt<uint32_t>(rest, 16);
    record.stored = NumberAt<uint32_t>(rest, 20);
    record.length = NumberAt<uint32_t>(rest, 24);
    record.header_at = NumberAt<uint32_t>(rest, 42);
    std::string_view extra = Find64(rest.substr(kDirectoryEntry + name_length, extra_length));
    if (!TakeFrom64(&extra, &record.length) || !TakeFrom64(&extra, &record.stored) ||
        !TakeFrom64(&extra, &record.header_at)) {
      return Bad("the directory is broken");
    }
    if ((flags & kEncrypted) != 0) {
      return absl::UnimplementedError(
          Bad(absl::StrCat("the record ", io::Shown(record.name), " is encrypted")).message());
    }
    record.compressed = method != 0;
    if (record.compressed && method != kDeflated) {
      return absl::UnimplementedError(
          Bad(absl::StrCat("the record ", io::Shown(record.name), " is compressed by method ", method)).message());
    }
    if (NumberAt<uint16_t>(rest, 34) != 0) {
      return absl::UnimplementedError(Bad("a part of an archive of several disks").message());
    }
    if (!record.compressed && record.stored != record.length)
      return Bad(absl::StrCat("the archive contradicts itself about the size of the record ", io::Shown(record.name)));
    has_checksums_ |= record.crc32 != 0;
    records_.push_back(std::move(record));
    rest.remove_prefix(entry_length);
  }
  if (static_cast<int64_t>(records_.size()) != count) return Bad("the directory has another number of records");
  return CheckOrder(at);
}

// Records lie one after the other, before the directory, and have names of their own.
absl::Status ZipArchive::CheckOrder(int64_t directory_at) {
  by_name_.resize(records_.size());
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::sort(by_name_.begin(), by_name_.end(), [&](size_t a, size_t b) { return records_[a].name < records_[b].name; });
  for (size_t i = 1; i < by_name_.size(); ++i) {
    if (records_[by_name_[i - 1]].name == records_[by_name_[i]].name) {
      return Bad(absl::StrCat("two records are called ", io::Shown(records_[by_name_[i]].name)));
    }
  }
  std::vector<Record*> ordered;
  for (Record& record : records_) ordered.push_back(&record);
  std::sort(ordered.begin(), ordered.end(),
            [](const Record* a, const Record* b) { return a->header_at < b->header_at; });
  for (size_t i = 0; i < ordered.size(); ++i) {
    Record& record = *ordered[i];
    record.end_before = i + 1 < ordered.size() ? ordered[i + 1]->header_at : directory_at;
    const int64_t head = kLocalHeader + static_cast<int64_t>(record.name.size());
    if (record.header_at > directory_at || record.end_before - record.header_at < head ||
        record.stored > record.end_before - record.header_at - head) {
      return Bad(absl::StrCat("the record ", io::Shown(record.name), " overlaps what comes after it"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ZipArchive> ZipArchive::Open(const io::ReadFile& file, int64_t at, int64_t length,
                                            int64_t most_directory) {
  ZipArchive archive(file, at, length);
  if (at < 0 || length < 0 || length > file.bytes() || at > file.bytes() - length) {
    return archive.Bad("beyond the end of the file");
  }
  RETURN_IF_ERROR(archive.ReadEnds());
  RETURN_IF_ERROR(archive.ReadDirectory(most_directory));
  return archive;
}

const ZipArchive::Record* ZipArchive::Find(std::string_view name) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [&](size_t i, std::string_view wanted) { return records_[i].name < wanted; });
  return found == by_name_.end() || records_[*found].name != name ? nullptr : &records_[*found];
}

absl::StatusOr<int64_t> ZipArchive::PayloadAt(const Record& record) const {
  if (record.compressed) {
    return absl::UnimplementedError(Bad(absl::StrCat("the record ", io::Shown(record.name),
                                                     " is compressed, and is read only where it is not; torch.save "
                                                     "writes it so"))
                                        .message());
  }
  return StoredAt(record);
}

absl::StatusOr<int64_t> ZipArchive::StoredAt(const Record& record) const {
  std::string header(kLocalHeader + record.name.size(), '\0');
  RETURN_IF_ERROR(ReadAt(record.header_at, absl::MakeSpan(header)));
  const auto flags = NumberAt<uint16_t>(header, 6);
  const auto differs = [&](uint32_t here, int64_t there) {
    return (flags & kSizesFollow) == 0 && here != kElsewhere && here != there;
  };
  if (NumberAt<uint32_t>(header, 0) != kLocalHeaderMark || NumberAt<uint16_t>(header, 26) != record.name.size() ||
      header.compare(kLocalHeader, record.name.size(), record.name) != 0 ||
      NumberAt<uint16_t>(header, 8) != (record.compressed ? kDeflated : 0) || (flags & kEncrypted) != 0 ||
      differs(NumberAt<uint32_t>(header, 18), record.stored) ||
      differs(NumberAt<uint32_t>(header, 22), record.length) ||
      ((flags & kSizesFollow) == 0 && NumberAt<uint32_t>(header, 14) != record.crc32)) {
    return Bad(absl::StrCat("the header of the record ", io::Shown(record.name), " differs from the directory"));
  }
  const int64_t begin = record.header_at + static_cast<int64_t>(header.size()) + NumberAt<uint16_t>(header, 28);
  if (begin > record.end_before || record.stored > record.end_before - begin) {
    return Bad(absl::StrCat("the record ", io::Shown(record.name), " overlaps what comes after it"));
  }
  return at_ + begin;
}

absl::Status ZipArchive::CheckChecksum(const Record& record, uint32_t crc32) const {
  if (!has_checksums_ || crc32 == record.crc32) return absl::OkStatus();
  return Bad(
      absl::StrCat("the record ", io::Shown(record.name), " is damaged: it does not have the CRC-32 of its archive"));
}

absl::StatusOr<std::string> ZipArchive::Inflate(const Record& record, std::string_view stored) const {
  // Deflate makes at most this much of a byte: more is not there, whatever the archive says.
  constexpr int64_t kMostOfAByte = 1032;
  const auto bad = [&] {
    return Bad(absl::StrCat("the record ", io::Shown(record.name), " does not unpack to the ", record.length,
                            " bytes that the archive says"));
  };
  if (record.length / kMostOfAByte > record.stored) return bad();
  const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> unpacker(
      libdeflate_alloc_decompressor(), &libdeflate_free_decompressor);
  if (unpacker == nullptr) return absl::ResourceExhaustedError("no memory to unpack a record");
  std::string out(static_cast<size_t>(record.length), '\0');
  const libdeflate_result result =
      libdeflate_deflate_decompress(unpacker.get(), stored.data(), stored.size(), out.data(), out.size(), nullptr);
  if (result != LIBDEFLATE_SUCCESS) return bad();
  return out;
}

absl::StatusOr<std::string> ZipArchive::ReadPayload(const Record& record, int64_t limit) const {
  if (record.length > limit) {
    return absl::ResourceExhaustedError(Bad(absl::StrCat("the record ", io::Shown(record.name), " has ", record.length,
                                                         " bytes; at most ", limit, " are allowed"))
                                            .message());
  }
  ASSIGN_OR_RETURN(const int64_t begin, StoredAt(record));
  std::string payload;
  if (record.stored <= 2 * kEnd) {  // perhaps at an end, which is in memory
    payload.resize(record.stored);
    RETURN_IF_ERROR(ReadAt(begin - at_, absl::MakeSpan(payload)));
  } else {
    ASSIGN_OR_RETURN(payload, file_->ReadText(begin, record.stored));
  }
  if (record.compressed) {
    ASSIGN_OR_RETURN(payload, Inflate(record, payload));
  }
  RETURN_IF_ERROR(CheckChecksum(record, libdeflate_crc32(0, payload.data(), payload.size())));
  return payload;
}

absl::Status ZipArchive::CheckPayloads() const {
  std::string part;
  for (const Record& record : records_) {
    ASSIGN_OR_RETURN(const int64_t begin, PayloadAt(record));
    uint32_t crc32 = 0;
    for (int64_t at = 0; at < record.length; at += kCheckedAtOnce) {
      part.resize(std::min(kCheckedAtOnce, record.length - at));
      RETURN_IF_ERROR(file_->ReadAt(begin + at, absl::MakeSpan(part)));
      crc32 = libdeflate_crc32(crc32, part.data(), part.size());
    }
    RETURN_IF_ERROR(CheckChecksum(record, crc32));
  }
  return absl::OkStatus();
}

}  // namespace reshard::zip
