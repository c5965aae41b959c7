#include "checkpoint/output/journal.h"

#include <xxhash.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/error_kind.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"

namespace reshard::output {
namespace {

constexpr std::string_view kMagic = "reshjrnl";
constexpr uint32_t kVersion = 1;
constexpr int64_t kHeaderBytes = 40;
constexpr int64_t kRecordBytes = 36;
constexpr int64_t kCheckBytes = 8;
constexpr int64_t kBlockRecords = int64_t{1} << 15;  // read at once: a little more than 1 MiB

void AppendInteger(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i) & 0xFF));
}

uint64_t ReadInteger(const char* data, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= uint64_t{static_cast<unsigned char>(data[i])} << (8 * i);
  return value;
}

std::string Header(XXH128_hash_t job) {
  std::string header(kMagic);
  AppendInteger(kVersion, 4, &header);
  AppendInteger(0, 4, &header);
  AppendInteger(job.low64, 8, &header);
  AppendInteger(job.high64, 8, &header);
  AppendInteger(XXH3_64bits(header.data(), header.size()), 8, &header);
  return header;
}

void AppendRecord(const FinishedPiece& piece, uint64_t seed, std::string* out) {
  const size_t begin = out->size();
  AppendInteger(piece.piece, 8, out);
  AppendInteger(piece.hash_low, 8, out);
  AppendInteger(piece.hash_high, 8, out);
  AppendInteger(piece.crc, 4, out);
  AppendInteger(XXH3_64bits_withSeed(out->data() + begin, out->size() - begin, seed), 8, out);
}

// Whether 36 bytes are a record as it was written.
bool ReadRecord(const char* data, uint64_t seed, FinishedPiece* piece) {
  constexpr int64_t kChecked = kRecordBytes - kCheckBytes;
  if (ReadInteger(data + kChecked, 8) != XXH3_64bits_withSeed(data, kChecked, seed)) return false;
  piece->piece = ReadInteger(data, 8);
  piece->hash_low = ReadInteger(data + 8, 8);
  piece->hash_high = ReadInteger(data + 16, 8);
  piece->crc = static_cast<uint32_t>(ReadInteger(data + 24, 4));
  return true;
}

// The directory of a path.
std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(const std::string& path, std::string_view job) {
  std::unique_ptr<Journal> journal(new Journal);
  const XXH128_hash_t hash = XXH3_128bits(job.data(), job.size());
  journal->seed_ = hash.low64;
  const std::string header = Header(hash);

  const status::MutexLock lock(journal->mutex_);
  absl::StatusOr<std::unique_ptr<io::ReadFile>> before = io::ReadFile::Open(path);
  if (!before.ok() && !absl::IsNotFound(before.status())) return before.status();
  if (before.ok()) {
    RETURN_IF_ERROR(journal->Read(**before, header));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<io::WriteFile> file,
                   before.ok() ? io::WriteFile::Reopen(path) : io::WriteFile::Create(path));
  journal->file_ = std::move(file);
  if (journal->dropped_bytes_ > 0) {
    // Cut off rather than overwritten: behind new records what was dropped could look valid again.
    RETURN_IF_ERROR(journal->file_->Truncate(journal->end_));
  }
  if (journal->end_ == 0) {
    RETURN_IF_ERROR(journal->file_->WriteAt(0, header));
    journal->end_ = kHeaderBytes;
    RETURN_IF_ERROR(journal->file_->Sync());
    RETURN_IF_ERROR(io::SyncDirectory(DirectoryOf(path)));
  }
  return journal;
}

absl::StatusOr<std::vector<FinishedPiece>> Journal::Look(const std::string& path, std::string_view job) {
  Journal journal;
  const XXH128_hash_t hash = XXH3_128bits(job.data(), job.size());
  journal.seed_ = hash.low64;
  const absl::StatusOr<std::unique_ptr<io::ReadFile>> file = io::ReadFile::Open(path);
  if (absl::IsNotFound(file.status())) return std::vector<FinishedPiece>();
  if (!file.ok()) return file.status();
  const status::MutexLock lock(journal.mutex_);
  const absl::Status read = journal.Read(**file, Header(hash));
  // DataLoss: of another job, or its owner has just cut off what was torn.
  if (!read.ok() && !absl::IsDataLoss(read)) return read;
  return std::move(journal.found_);
}

absl::Status Journal::Read(const io::ReadFile& file, std::string_view header) {
  dropped_bytes_ = file.bytes();
  if (file.bytes() < kHeaderBytes) return absl::OkStatus();
  std::string block(kHeaderBytes, '\0');
  RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(block)));
  if (block != header) {
    const char* const check = block.data() + kHeaderBytes - kCheckBytes;
    if (ReadInteger(check, 8) != XXH3_64bits(block.data(), kHeaderBytes - kCheckBytes)) return absl::OkStatus();
    const bool same_format = block.compare(0, kMagic.size() + 4, header, 0, kMagic.size() + 4) == 0;
    return absl::DataLossError(
        absl::StrCat(file.path(), same_format ? " is the journal of another job" : " is a journal of another version"));
  }
  end_ = kHeaderBytes;
  const int64_t records = (file.bytes() - kHeaderBytes) / kRecordBytes;
  found_.reserve(records);
  bool whole = true;
  for (int64_t done = 0; whole && done < records;) {
    const int64_t count = std::min(kBlockRecords, records - done);
    block.resize(count * kRecordBytes);
    RETURN_IF_ERROR(file.ReadAt(end_, absl::MakeSpan(block)));
    FinishedPiece piece;
    for (int64_t i = 0; i < count; ++i) {
      whole = ReadRecord(block.data() + i * kRecordBytes, seed_, &piece);
      if (!whole) break;
      found_.push_back(piece);
      end_ += kRecordBytes;
    }
    done += count;
  }
  dropped_bytes_ = file.bytes() - end_;
  return absl::OkStatus();
}

absl::Status Journal::Add(absl::Span<const FinishedPiece> pieces) {
  std::string records;
  for (const FinishedPiece& piece : pieces) AppendRecord(piece, seed_, &records);
  const status::MutexLock lock(mutex_);
  const std::optional<int64_t> end = CheckedAdd(end_, static_cast<int64_t>(records.size()));
  if (!end) {
    return io::FromSystem(absl::ResourceExhaustedError(absl::StrCat(file_->path(), " has no room for more records")));
  }
  // The next write overwrites what a failed one left. Records of it that this leaves whole are valid.
  RETURN_IF_ERROR(file_->WriteAt(end_, records));
  end_ = *end;
  return absl::OkStatus();
}

}  // namespace reshard::output
