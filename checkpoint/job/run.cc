#include "checkpoint/job/run.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/remove_tree.h"
#include "checkpoint/job/compare_result.h"
#include "checkpoint/job/convert_error.h"
#include "checkpoint/job/headers.h"
#include "checkpoint/job/job_name.h"
#include "checkpoint/job/share_records.h"

namespace reshard {
namespace {

// One that tells of another job, or of the source as it was before, is of no use.
absl::StatusOr<std::unique_ptr<Journal>> OpenJournal(const std::string& path, std::string_view id) {
  absl::StatusOr<std::unique_ptr<Journal>> journal = Journal::Open(path, id);
  if (!absl::IsDataLoss(journal.status())) return journal;
  if (absl::Status removed = RemoveTree(path); !removed.ok()) return removed;
  return Journal::Open(path, id);
}

}  // namespace

Run::Run(Conversion* conversion, StagedDirectory* stage)
    : conversion_(*conversion),
      options_(conversion->options),
      stage_(*stage),
      group_(*stage, conversion->terms, options_.worker, options_.workers, options_.patience),
      meter_(conversion->share.bytes, [this](const ConvertProgress& progress) { Report(progress); }),
      hashes_(conversion->plan->pieces().size()) {}

absl::Status Run::Do() {
  const absl::StatusOr<bool> done = WasDone();
  if (!done.ok()) return FromSystem(done.status());
  if (!*done) {
    if (absl::Status written = WriteShare(); !written.ok()) return written;
  }
  meter_.Finish();
  const absl::StatusOr<std::unique_ptr<FileLock>> lock = WaitForAll();
  if (!lock.ok()) return lock.status();
  if (*lock != nullptr) {
    // Who finished before may have been killed in the middle of it.
    const absl::StatusOr<bool> moved = stage_.HasMoved();
    if (!moved.ok()) return FromSystem(moved.status());
    if (!*moved) {
      if (absl::Status finished = Finish(); !finished.ok()) return finished;
    }
    conversion_.summary.committed = true;
  }
  return FromSystem(stage_.Commit());
}

absl::Status Run::WriteShare() {
  absl::StatusOr<std::unique_ptr<Journal>> journal = OpenJournal(group_.JournalOf(options_.worker), conversion_.id);
  if (!journal.ok()) return FromSystem(journal.status());
  absl::StatusOr<std::unique_ptr<OutputFiles>> files =
      OutputFiles::Open(*conversion_.plan, stage_.data(), JoinPath(stage_.stage(), "files"), options_.worker == 0);
  if (!files.ok()) return FromSystem(files.status());
  const PieceWriter writer(conversion_, files->get(), &meter_);
  const Share& share = conversion_.share;
  std::vector<char> kept(static_cast<size_t>(share.end - share.first), 0);
  absl::Status status = Keep(writer, journal->get(), &kept);
  if (!status.ok()) return status;

  std::vector<std::string> buffers(static_cast<size_t>(conversion_.buffers.threads));
  status = RunTasks(share.end - share.first, conversion_.buffers.threads, [&](int64_t i, int thread) -> absl::Status {
    if (kept[static_cast<size_t>(i)] != 0) return absl::OkStatus();
    const absl::StatusOr<FinishedPiece> piece = writer.Write(share.first + i, buffers[static_cast<size_t>(thread)]);
    if (!piece.ok()) return piece.status();
    hashes_[piece->piece] = {piece->hash_low, piece->hash_high};
    return FromSystem((*journal)->Add(*piece));
  });
  if (!status.ok()) return status;
  const absl::StatusOr<std::string> changed = ChangedFile(conversion_.catalog());
  if (!changed.ok()) return FromSystem(changed.status());
  if (!changed->empty()) {
    return absl::FailedPreconditionError(absl::StrCat("the source was written to while it was read: ", *changed));
  }
  return Sync(journal->get(), files->get());
}

// Pieces that an interrupted run finished are kept when they are what it says they are.
absl::Status Run::Keep(const PieceWriter& writer, Journal* journal, std::vector<char>* kept) {
  const Share& share = conversion_.share;
  const std::string own = group_.JournalOf(options_.worker);
  absl::StatusOr<std::vector<FinishedPiece>> all = RecordsOfOthers(stage_.stage(), own, conversion_.id);
  if (!all.ok()) return FromSystem(all.status());
  all->insert(all->end(), journal->found().begin(), journal->found().end());
  const std::vector<FinishedPiece> records = LastRecords(share, *all);
  const std::vector<FinishedPiece> known = LastRecords(share, journal->found());
  std::vector<std::string> buffers(static_cast<size_t>(conversion_.buffers.threads));
  std::atomic<int64_t> bytes{0};
  absl::Status checked = RunTasks(
      static_cast<int64_t>(records.size()), conversion_.buffers.threads, [&](int64_t r, int thread) -> absl::Status {
        const FinishedPiece& record = records[static_cast<size_t>(r)];
        const absl::StatusOr<bool> there = writer.IsThere(record, buffers[static_cast<size_t>(thread)]);
        if (!there.ok() || !*there) return there.status();
        hashes_[record.piece] = {record.hash_low, record.hash_high};
        (*kept)[record.piece - static_cast<uint64_t>(share.first)] = 1;
        bytes += conversion_.plan->pieces()[record.piece].payload_bytes;
        const auto ours = std::lower_bound(known.begin(), known.end(), record,
                                           [](const auto& a, const auto& b) { return a.piece < b.piece; });
        const bool has_it = ours != known.end() && *ours == record;
        return has_it ? absl::OkStatus() : FromSystem(journal->Add(record));
      });
  conversion_.summary.kept_bytes = bytes;
  return checked;
}

// All of this worker's share is on the disk, and the others may know.
absl::Status Run::Sync(Journal* journal, OutputFiles* files) {
  std::vector<int32_t> written;
  for (int64_t i = conversion_.share.first; i < conversion_.share.end; ++i) {
    written.push_back(conversion_.plan->pieces()[static_cast<size_t>(i)].place.file);
  }
  // Worker 0 has given each file its length and its head.
  for (int64_t f = 0; options_.worker == 0 && f < conversion_.summary.files; ++f) {
    written.push_back(static_cast<int32_t>(f));
  }
  std::sort(written.begin(), written.end());
  written.erase(std::unique(written.begin(), written.end()), written.end());
  absl::Status synced =
      RunTasks(static_cast<int64_t>(written.size()), conversion_.buffers.threads, [&](int64_t i, int) -> absl::Status {
        group_.Beat();
        return FromSystem(files->Sync(written[static_cast<size_t>(i)]));
      });
  if (!synced.ok() || group_.alone()) return synced;
  if (synced.ok()) synced = files->SyncNames();
  if (synced.ok()) synced = journal->Sync();
  if (synced.ok()) synced = group_.MarkDone();
  return FromSystem(std::move(synced));
}

// Whether this worker came to its end before, and waited in vain for others then. Nothing is written again in that
// case, since those who have seen that it is done may be about to commit.
absl::StatusOr<bool> Run::WasDone() {
  if (group_.alone()) return false;
  absl::StatusOr<bool> marked = group_.IsDone(options_.worker);
  if (!marked.ok() || !*marked) return marked;
  absl::StatusOr<bool> gathered = Gather(options_.worker);
  if (!gathered.ok()) return gathered;
  if (!*gathered) {
    if (absl::Status taken = group_.TakeBackDone(); !taken.ok()) return taken;
    return false;
  }
  conversion_.summary.kept_bytes = conversion_.share.bytes;
  meter_.Add(conversion_.share.bytes);
  return true;
}

absl::StatusOr<std::unique_ptr<FileLock>> Run::WaitForAll() {
  absl::StatusOr<std::unique_ptr<FileLock>> lock = group_.WaitForAll([this](int64_t workers) {
    last_.waiting_for = workers;
    if (options_.progress) options_.progress(last_);
  });
  return lock.ok() || absl::IsDeadlineExceeded(lock.status()) ? std::move(lock) : FromSystem(lock.status());
}

// What is left to do when all pieces are there.
absl::Status Run::Finish() {
  for (int64_t k = 0; k < options_.workers; ++k) {
    if (k == options_.worker) continue;
    const absl::StatusOr<bool> gathered = Gather(k);
    if (!gathered.ok()) return FromSystem(gathered.status());
    if (!*gathered) {
      return FromSystem(absl::UnavailableError(absl::StrCat("worker ", k, " was done, but ", group_.JournalOf(k),
                                                            " lacks some of its pieces; start it again")));
    }
    group_.Beat();
  }
  absl::Status written = WriteHeaders(conversion_.catalog(), *conversion_.plan, conversion_.id, stage_.data(), hashes_);
  if (!written.ok()) return FromSystem(std::move(written));
  if (!options_.verify) return absl::OkStatus();
  return CompareResult(conversion_, stage_.data(), [this](const ConvertProgress&) { group_.Beat(); });
}

// Takes over the hashes of what a worker has written. False: of some pieces of its share there are none.
absl::StatusOr<bool> Run::Gather(int64_t worker) {
  const absl::StatusOr<std::vector<FinishedPiece>> records = Journal::Look(group_.JournalOf(worker), conversion_.id);
  if (!records.ok()) return records.status();
  const Share share = ShareOf(*conversion_.plan, worker, options_.workers);
  const std::vector<FinishedPiece> last = LastRecords(share, *records);
  for (const FinishedPiece& record : last) hashes_[record.piece] = {record.hash_low, record.hash_high};
  return static_cast<int64_t>(last.size()) == share.end - share.first;
}

void Run::Report(const ConvertProgress& progress) {
  last_ = progress;
  group_.Beat();
  if (options_.progress) options_.progress(progress);
}

}  // namespace reshard
