// A record of what a job has finished, in a file from which it can continue after it was killed at any instant.
//
//   header   "reshjrnl", format version (u32), 0 (u32), XXH3-128 of the job's name, XXH3-64 of the 32 bytes before
//   record   piece (u64), XXH3-128 of its content, CRC-32 of its content (u32), XXH3-64 of the 28 bytes before, seeded
//            with the job, so that stale blocks of another journal are not taken for records
//
// Integers are little-endian, and hashes have the low half first. A journal is read up to the first byte that is not as
// it was written: a torn or corrupted record, and everything after it, counts as not written. A journal says what was
// finished, not that it still exists: the data may have been lost with the machine's memory although the record was
// not. So a resumed job reads the data of each piece again and compares its hash.
#ifndef RESHARD_CHECKPOINT_OUTPUT_JOURNAL_H_
#define RESHARD_CHECKPOINT_OUTPUT_JOURNAL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/io/files.h"
#include "status/mutex.h"

namespace reshard::output {

struct FinishedPiece {
  uint64_t piece = 0;
  uint64_t hash_low = 0;  // XXH3-128 of the content
  uint64_t hash_high = 0;
  uint32_t crc = 0;

  bool operator==(const FinishedPiece&) const = default;
};

class Journal {
 public:
  // Reads what is at `path`, a file that only this process writes; what does not belong to a journal of this version is
  // cut off. Creates the file, durably, where there is none. DataLoss: the journal of another job or version. Takes
  // memory in proportion to the file's size, whatever is in it.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(const std::string& path, std::string_view job);

  // What is in a journal that another process may be writing just now. Nothing where there is none, or none of this job
  // and version.
  static absl::StatusOr<std::vector<FinishedPiece>> Look(const std::string& path, std::string_view job);

  // What the file held when it was opened, in the order of writing; the last record of a piece counts.
  const std::vector<FinishedPiece>& found() const { return found_; }
  // How many bytes were cut off.
  int64_t dropped_bytes() const { return dropped_bytes_; }

  // Appends records, with one write. From any number of threads. After an error some of them may be in the journal.
  absl::Status Add(absl::Span<const FinishedPiece> pieces);
  absl::Status Add(const FinishedPiece& piece) { return Add(absl::MakeConstSpan(&piece, 1)); }
  // All that was added before is on the disk.
  absl::Status Sync() { return file_->Sync(); }

 private:
  Journal() = default;
  absl::Status Read(const io::ReadFile& file, std::string_view header) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::unique_ptr<io::WriteFile> file_;
  uint64_t seed_ = 0;
  std::vector<FinishedPiece> found_;
  int64_t dropped_bytes_ = 0;
  status::Mutex mutex_;
  int64_t end_ ABSL_GUARDED_BY(mutex_) = 0;  // where the next record goes
};

}  // namespace reshard::output

#endif  // RESHARD_CHECKPOINT_OUTPUT_JOURNAL_H_
