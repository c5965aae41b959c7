// Reads the directory of a zip archive that is part of a file, such as the streams of torch.save that follow each other
// in a `.distcp` file. Everything that the archive says about itself must agree. Records that are read in place must be
// stored uncompressed.
#ifndef RESHARD_CHECKPOINT_FORMATS_ZIP_READER_H_
#define RESHARD_CHECKPOINT_FORMATS_ZIP_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/io/files.h"

namespace reshard::zip {

class ZipArchive {
 public:
  struct Record {
    std::string name;
    int64_t header_at = 0;   // of its local header, from the start of the archive
    int64_t end_before = 0;  // where the next record or the directory begins
    int64_t length = 0;      // of its payload
    int64_t stored = 0;      // the bytes that it takes: `length`, but for a compressed one
    bool compressed = false;
    uint32_t crc32 = 0;  // of its payload, as the archive says; see has_checksums()
  };

  static constexpr int64_t kMostDirectory = int64_t{1} << 20;  // bytes; of archives that have few records

  // The archive in bytes [at, at + length) of `file`, which must outlive it. Reads its two ends, 4 KiB each, and what
  // of the directory is not in those. DataLoss: no archive, or one that contradicts itself: records that overlap or lie
  // outside, a name twice. Unimplemented: encrypted records, those of another compression than deflate, archives of
  // several disks.
  // ResourceExhausted: a directory of more than `most_directory` bytes.
  static absl::StatusOr<ZipArchive> Open(const io::ReadFile& file, int64_t at, int64_t length,
                                         int64_t most_directory = kMostDirectory);

  const std::vector<Record>& records() const { return records_; }
  // Null when there is none of that name.
  const Record* Find(std::string_view name) const;
  // PyTorch can be told to compute no checksums (torch.serialization.set_crc32_options), and then writes 0 everywhere.
  bool has_checksums() const { return has_checksums_; }
  // Where the payload begins in the file. DataLoss: its local header differs from the directory. Unimplemented: it
  // is compressed, so that no place in the file has it.
  absl::StatusOr<int64_t> PayloadAt(const Record& record) const;
  // The payload; ResourceExhausted when it is longer than `limit`, DataLoss when it does not have its checksum, or is
  // compressed and not what the archive says.
  absl::StatusOr<std::string> ReadPayload(const Record& record, int64_t limit) const;
  // Reads every payload, a little at a time. DataLoss: one that does not have its checksum. Unimplemented: one is
  // compressed.
  absl::Status CheckPayloads() const;

 private:
  ZipArchive(const io::ReadFile& file, int64_t at, int64_t length) : file_(&file), at_(at), length_(length) {}

  // Bytes of the archive, from its ends where they have them.
  absl::Status ReadAt(int64_t at, absl::Span<char> out) const;
  absl::Status ReadEnds();
  // Where the stored bytes of a record begin in the file.
  absl::StatusOr<int64_t> StoredAt(const Record& record) const;
  absl::Status ReadDirectory(int64_t most_directory);
  absl::Status CheckOrder(int64_t directory_at);
  absl::StatusOr<std::string> Inflate(const Record& record, std::string_view stored) const;
  absl::Status CheckChecksum(const Record& record, uint32_t crc32) const;
  absl::Status Bad(std::string_view what) const;

  const io::ReadFile* file_;
  int64_t at_;
  int64_t length_;
  std::string head_;
  std::string tail_;
  std::vector<Record> records_;
  std::vector<size_t> by_name_;  // the records, sorted
  bool has_checksums_ = false;
};

}  // namespace reshard::zip

#endif  // RESHARD_CHECKPOINT_FORMATS_ZIP_READER_H_
