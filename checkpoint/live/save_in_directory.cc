#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/staged_directory.h"
#include "checkpoint/live/save_place.h"
#include "checkpoint/output/headers.h"
#include "checkpoint/output/journal.h"
#include "status/macros.h"
#include "status/mutex.h"

namespace reshard::live {
namespace {

// A file, and a journal of the hashes of its pieces.
class FileInDirectory final : public SaveFile {
 public:
  FileInDirectory(std::unique_ptr<io::WriteFile> file, std::unique_ptr<output::Journal> journal)
      : file_(std::move(file)), journal_(std::move(journal)) {}

  absl::Status WriteAt(int64_t at, std::string_view bytes) override {
    // The kernel serializes writes to one file, and threads that wait there keep their cores busy.
    const status::MutexLock lock(writing_);
    return file_->WriteAt(at, bytes);
  }
  absl::Status Note(size_t piece, const hash::ContentSums& sums) override {
    const hash::ContentHash hash = sums.hash();
    return journal_->Add(output::FinishedPiece{static_cast<uint64_t>(piece), hash.low, hash.high, sums.crc()});
  }
  absl::Status Finish() override {
    RETURN_IF_ERROR(file_->Sync());
    RETURN_IF_ERROR(file_->Close());
    return journal_->Sync();
  }

 private:
  const std::unique_ptr<io::WriteFile> file_;
  const std::unique_ptr<output::Journal> journal_;
  status::Mutex writing_;
};

class DirectoryPlace final : public SavePlace {
 public:
  DirectoryPlace(const std::string& path, const SavePlan& saved, std::string stage_path)
      : path_(path), saved_(saved), stage_path_(std::move(stage_path)) {}

  bool is_in_order() const override { return false; }

  absl::Status Begin() override {
    ASSIGN_OR_RETURN(stage_, io::StagedDirectory::Begin(path_, saved_.job, {saved_.overwrite, /*resume=*/false}));
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<SaveFile>> Create(int32_t file, absl::Span<const size_t>) override {
    const output::OutputPlan::File& planned = saved_.plan.files()[static_cast<size_t>(file)];
    absl::StatusOr<std::unique_ptr<io::WriteFile>> created =
        io::WriteFile::Create(io::JoinPath(io::JoinPath(stage_path_, "data"), planned.name), planned.bytes);
    if (!created.ok()) {
      if (!absl::IsNotFound(created.status())) return created.status();
      return absl::NotFoundError(absl::StrCat(created.status().message(), "; do all ranks see the same directory?"));
    }
    ASSIGN_OR_RETURN(std::unique_ptr<output::Journal> journal,
                     output::Journal::Open(JournalOf(static_cast<size_t>(file)), saved_.job));
    return std::make_unique<FileInDirectory>(*std::move(created), std::move(journal));
  }

  absl::Status Commit() override {
    std::vector<hash::ContentHash> hashes(saved_.plan.pieces().size());
    std::vector<char> known(hashes.size(), 0);
    for (size_t f = 0; f < saved_.plan.files().size(); ++f) {
      ASSIGN_OR_RETURN(const std::vector<output::FinishedPiece> records,
                       output::Journal::Look(JournalOf(f), saved_.job));
      for (const output::FinishedPiece& record : records) {
        if (record.piece >= hashes.size()) continue;
        hashes[record.piece] = {record.hash_low, record.hash_high};
        known[record.piece] = 1;
      }
    }
    const auto missing = std::count(known.begin(), known.end(), 0);
    if (missing > 0) {
      return absl::UnavailableError(absl::StrCat("of ", known.size(), " pieces ", missing,
                                                 " cannot be seen by this rank; do all ranks see the same directory?"));
    }
    RETURN_IF_ERROR(output::WriteHeaders(saved_.catalog, saved_.plan, saved_.job, stage_->data(), hashes));
    return stage_->Commit();
  }

  // The stage is moved away first, along with what a rank may still be writing in it.
  void Abandon(bool) override {
    if (stage_ != nullptr && !stage_->was_committed()) stage_->Abandon().IgnoreError();
  }

 private:
  std::string JournalOf(size_t file) const { return io::JoinPath(stage_path_, absl::StrCat("journal-", file)); }

  const std::string path_;
  const SavePlan saved_;
  const std::string stage_path_;
  std::unique_ptr<io::StagedDirectory> stage_;  // on the coordinator
};

}  // namespace

absl::StatusOr<std::unique_ptr<SavePlace>> PlaceInDirectory(const std::string& path, const SavePlan& saved) {
  ASSIGN_OR_RETURN(std::string stage, io::StagedDirectory::StageOf(path, saved.job));
  return std::make_unique<DirectoryPlace>(path, saved, std::move(stage));
}

}  // namespace reshard::live
