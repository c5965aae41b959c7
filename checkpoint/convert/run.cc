#include "checkpoint/convert/run.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/auxiliary_files/copy.h"
#include "checkpoint/catalog/boxes.h"
#include "checkpoint/convert/batched_reads.h"
#include "checkpoint/convert/compare_result.h"
#include "checkpoint/convert/share_records.h"
#include "checkpoint/io/error_kind.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/remove_tree.h"
#include "checkpoint/output/headers.h"
#include "checkpoint/output/job_name.h"
#include "status/log.h"
#include "status/macros.h"

namespace reshard::convert {
namespace {

// Opens the journal. One of another job, or of the source as it was before, is replaced.
absl::StatusOr<std::unique_ptr<output::Journal>> OpenJournal(const std::string& path, std::string_view id) {
  absl::StatusOr<std::unique_ptr<output::Journal>> journal = output::Journal::Open(path, id);
  if (!absl::IsDataLoss(journal.status())) return journal;
  RETURN_IF_ERROR(io::RemoveTree(path));
  return output::Journal::Open(path, id);
}

// Every piece of a batch has a good part of what is read at a time, and all threads have something to do until the end.
// A run that is killed loses a batch; one that is asked to stop finishes its batch first.
BatchLimits LimitsOf(const Conversion& conversion) {
  constexpr int64_t kLeastOfPiece = int64_t{64} << 10, kBandsPerThread = 4, kLongest = 4 * catalog::kLargestBox;
  const Buffers& buffers = conversion.buffers;
  return {buffers.stripe / kLeastOfPiece,
          std::clamp(conversion.share.bytes / (kBandsPerThread * buffers.threads), buffers.stripe, kLongest)};
}

}  // namespace

Run::Run(Conversion* conversion, io::StagedDirectory* stage)
    : conversion_(*conversion),
      options_(conversion->options),
      stage_(*stage),
      group_(*stage, conversion->terms, options_.worker, options_.workers, options_.stall_timeout),
      meter_(conversion->share.bytes, [this](const ConvertProgress& progress) { Report(progress); }),
      hashes_(conversion->plan->pieces().size()) {}

absl::Status Run::Do() {
  const absl::StatusOr<bool> done = WasDone();
  if (!done.ok()) return io::FromSystem(done.status());
  if (!*done) {
    RETURN_IF_ERROR(WriteShare());
  }
  meter_.Finish();
  ASSIGN_OR_RETURN(const std::unique_ptr<io::FileLock> lock, WaitForAll());
  if (lock != nullptr) {
    // Another worker may have been killed in the middle of its commit.
    const absl::StatusOr<bool> moved = stage_.HasMoved();
    if (!moved.ok()) return io::FromSystem(moved.status());
    if (!*moved) {
      RETURN_IF_ERROR(Finish());
    }
    conversion_.summary.committed = true;
  }
  RESHARD_LOG(kInfo, "moves the result to ", conversion_.destination);
  return io::FromSystem(stage_.Commit());
}

absl::Status Run::WriteShare() {
  absl::StatusOr<std::unique_ptr<output::Journal>> journal =
      OpenJournal(group_.JournalOf(options_.worker), conversion_.id);
  if (!journal.ok()) return io::FromSystem(journal.status());
  absl::StatusOr<std::unique_ptr<output::OutputFiles>> files = output::OutputFiles::Open(
      *conversion_.plan, stage_.data(), io::JoinPath(stage_.stage(), "files"), options_.worker == 0);
  if (!files.ok()) return io::FromSystem(files.status());
  const PieceWriter writer(conversion_, files->get(), &meter_);
  const Share& share = conversion_.share;
  std::vector<char> kept(static_cast<size_t>(share.end - share.first), 0);
  absl::Status status = Keep(writer, **files, journal->get(), &kept);
  if (!status.ok()) return status;

  RESHARD_LOG(kInfo, "worker ", options_.worker, " writes ", share.end - share.first, " pieces, ", share.bytes,
              " bytes, of which ", conversion_.summary.kept_bytes, " are there already");
  std::vector<int64_t> missing;
  for (int64_t i = share.first; i < share.end; ++i) {
    if (kept[i - share.first] == 0) missing.push_back(i);
  }
  const BatchedReads reads = BatchReads(*conversion_.plan, missing, LimitsOf(conversion_));
  std::vector<std::string> buffers(static_cast<size_t>(conversion_.buffers.threads));
  status = tasks::RunTasks(
      static_cast<int64_t>(reads.batches.size()), conversion_.buffers.threads,
      [&](int64_t i, int thread) -> absl::Status {
        ASSIGN_OR_RETURN(const std::vector<output::FinishedPiece> finished,
                         writer.Write(reads, reads.batches[i], buffers[thread]));
        for (const output::FinishedPiece& piece : finished) hashes_[piece.piece] = {piece.hash_low, piece.hash_high};
        return (*journal)->Add(finished);
      },
      options_.stop);
  if (!status.ok()) return status;
  const absl::StatusOr<std::string> changed = output::ChangedFile(conversion_.catalog());
  if (!changed.ok()) return io::FromSystem(changed.status());
  if (!changed->empty()) {
    return absl::FailedPreconditionError(absl::StrCat("the source was written to while it was read: ", *changed));
  }
  return Sync(journal->get(), files->get());
}

// Keeps the pieces that an interrupted run finished, if they are what its records say.
absl::Status Run::Keep(const PieceWriter& writer, const output::OutputFiles& files, output::Journal* journal,
                       std::vector<char>* kept) {
  const Share& share = conversion_.share;
  const std::string own = group_.JournalOf(options_.worker);
  absl::StatusOr<std::vector<output::FinishedPiece>> all = RecordsOfOthers(stage_.stage(), own, conversion_.id);
  if (!all.ok()) return io::FromSystem(all.status());
  all->insert(all->end(), journal->found().begin(), journal->found().end());
  const std::vector<output::FinishedPiece> records = LastRecords(share, *all);
  const std::vector<output::FinishedPiece> known = LastRecords(share, journal->found());
  std::vector<std::string> buffers(static_cast<size_t>(conversion_.buffers.threads));
  std::atomic<int64_t> bytes{0};
  absl::Status checked = tasks::RunTasks(
      static_cast<int64_t>(records.size()), conversion_.buffers.threads,
      [&](int64_t r, int thread) -> absl::Status {
        const output::FinishedPiece& record = records[r];
        const std::string path = files.path(conversion_.plan->pieces()[record.piece].place.file);
        const absl::StatusOr<bool> there = writer.IsThere(record, path, buffers[thread]);
        if (!there.ok() || !*there) return there.status();
        hashes_[record.piece] = {record.hash_low, record.hash_high};
        (*kept)[record.piece - static_cast<uint64_t>(share.first)] = 1;
        bytes += conversion_.plan->pieces()[record.piece].payload_bytes;
        const auto ours = std::lower_bound(known.begin(), known.end(), record,
                                           [](const auto& a, const auto& b) { return a.piece < b.piece; });
        const bool has_it = ours != known.end() && *ours == record;
        return has_it ? absl::OkStatus() : journal->Add(record);
      },
      options_.stop);
  conversion_.summary.kept_bytes = bytes;
  return checked;
}

// Syncs all of this worker's share to the disk, and then tells the others.
absl::Status Run::Sync(output::Journal* journal, output::OutputFiles* files) {
  std::vector<int32_t> written;
  for (int64_t i = conversion_.share.first; i < conversion_.share.end; ++i) {
    written.push_back(conversion_.plan->pieces()[i].place.file);
  }
  // Worker 0 has given each file its length and its head.
  for (int64_t f = 0; options_.worker == 0 && f < conversion_.summary.files; ++f) {
    written.push_back(static_cast<int32_t>(f));
  }
  std::sort(written.begin(), written.end());
  written.erase(std::unique(written.begin(), written.end()), written.end());
  const auto count = static_cast<int64_t>(written.size());
  const auto sync = [&](int64_t i, int) -> absl::Status {
    group_.Heartbeat();
    return files->Sync(written[i]);
  };
  absl::Status synced = tasks::RunTasks(count, tasks::WaitingThreads(conversion_.buffers.threads, count), sync);
  if (!synced.ok() || group_.alone()) return synced;
  if (synced.ok()) synced = files->SyncNames();
  if (synced.ok()) synced = journal->Sync();
  if (synced.ok()) synced = group_.MarkDone();
  return synced;
}

// Whether an earlier run of this worker finished its share, and waited in vain for others. Nothing is written again in
// that case, since workers that have seen that it is done may be about to commit.
absl::StatusOr<bool> Run::WasDone() {
  if (group_.alone()) return false;
  absl::StatusOr<bool> marked = group_.IsDone(options_.worker);
  if (!marked.ok() || !*marked) return marked;
  absl::StatusOr<bool> gathered = Gather(options_.worker);
  if (!gathered.ok()) return gathered;
  if (!*gathered) {
    RETURN_IF_ERROR(group_.TakeBackDone());
    return false;
  }
  conversion_.summary.kept_bytes = conversion_.share.bytes;
  meter_.Add(conversion_.share.bytes);
  return true;
}

absl::StatusOr<std::unique_ptr<io::FileLock>> Run::WaitForAll() {
  absl::StatusOr<std::unique_ptr<io::FileLock>> lock = group_.WaitForAll(
      [this](int64_t workers) {
        last_.waiting_for = workers;
        if (options_.progress) options_.progress(last_);
      },
      options_.stop);
  return lock.ok() || absl::IsDeadlineExceeded(lock.status()) ? std::move(lock) : io::FromSystem(lock.status());
}

// Does what is left once all pieces are there.
absl::Status Run::Finish() {
  for (int64_t k = 0; k < options_.workers; ++k) {
    if (k == options_.worker) continue;
    const absl::StatusOr<bool> gathered = Gather(k);
    if (!gathered.ok()) return io::FromSystem(gathered.status());
    if (!*gathered) {
      return io::FromSystem(absl::UnavailableError(absl::StrCat("worker ", k, " was done, but ", group_.JournalOf(k),
                                                                " lacks some of its pieces; start it again")));
    }
    group_.Heartbeat();
  }
  absl::Status written =
      auxiliary_files::Copy(conversion_.catalog().root(), conversion_.summary.side_files, stage_.data());
  if (absl::IsFailedPrecondition(written)) return written;
  if (!written.ok()) return io::FromSystem(std::move(written));
  written = output::WriteHeaders(conversion_.catalog(), *conversion_.plan, conversion_.id, stage_.data(), hashes_,
                                 conversion_.made);
  if (!written.ok()) return io::FromSystem(std::move(written));
  if (!options_.verify) return absl::OkStatus();
  RESHARD_LOG(kInfo, "reads the result back and compares it with the source");
  return CompareResult(conversion_, stage_.data(), [this](const ConvertProgress&) { group_.Heartbeat(); });
}

// Takes over the hashes of what a worker has written. False: some pieces of its share have none.
absl::StatusOr<bool> Run::Gather(int64_t worker) {
  ASSIGN_OR_RETURN(const std::vector<output::FinishedPiece> records,
                   output::Journal::Look(group_.JournalOf(worker), conversion_.id));
  const Share share = ShareOf(*conversion_.plan, worker, options_.workers);
  const std::vector<output::FinishedPiece> last = LastRecords(share, records);
  for (const output::FinishedPiece& record : last) hashes_[record.piece] = {record.hash_low, record.hash_high};
  return static_cast<int64_t>(last.size()) == share.end - share.first;
}

void Run::Report(const ConvertProgress& progress) {
  last_ = progress;
  group_.Heartbeat();
  if (options_.progress) options_.progress(progress);
}

}  // namespace reshard::convert
