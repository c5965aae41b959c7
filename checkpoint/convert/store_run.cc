#include "checkpoint/convert/store_run.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/auxiliary_files/copy.h"
#include "checkpoint/convert/store_writer.h"
#include "checkpoint/into_store/heartbeat.h"
#include "checkpoint/into_store/occupancy.h"
#include "checkpoint/io/error_kind.h"
#include "checkpoint/io/files.h"
#include "checkpoint/output/headers.h"
#include "checkpoint/output/job_name.h"
#include "checkpoint/source/sidecar.h"
#include "checkpoint/stores/at_once.h"
#include "status/log.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard::convert {
namespace {

using into_store::StoreJob;

using Clock = std::chrono::steady_clock;

// A worker whose heartbeat has not changed for this long is gone: others write what it had begun.
constexpr std::chrono::seconds kGone(6 * StoreJob::kBeatSeconds);
constexpr std::chrono::seconds kLook(2);
// How often a result whose objects others have replaced is begun over.
constexpr int kTries = 3;

// Which workers live, by their heartbeats as this one sees them.
class Watch {
 public:
  // Whether anything has changed since it was last told.
  bool Tell(const std::map<int64_t, std::string>& beats) {
    bool changed = false;
    for (const auto& [worker, version] : beats) {
      auto& [last, at] = seen_[worker];
      if (last == version) continue;
      last = version;
      at = Clock::now();
      changed = true;
    }
    return changed;
  }
  bool IsGone(int64_t worker) const {
    const auto found = seen_.find(worker);
    return Clock::now() - (found == seen_.end() ? begun_ : found->second.second) > kGone;
  }

 private:
  const Clock::time_point begun_ = Clock::now();
  std::map<int64_t, std::pair<std::string, Clock::time_point>> seen_;
};

}  // namespace

StoreRun::StoreRun(Conversion* conversion, std::shared_ptr<Store> store)
    : conversion_(*conversion),
      options_(conversion->options),
      store_(std::move(store)),
      job_(store_, conversion->destination, conversion->name, conversion->id, conversion->options.worker),
      meter_(options_.workers > 1 ? conversion->share.bytes : conversion->plan->bytes(), options_.progress),
      pieces_(conversion->plan->files().size(), {0, 0}),
      hashes_(conversion->plan->pieces().size()),
      own_claims_(conversion->plan->files().size(), 0),
      records_(conversion->plan->files().size()) {
  const std::vector<output::OutputPlan::OutputPiece>& pieces = conversion_.plan->pieces();
  for (size_t i = 0; i < pieces.size(); ++i) {
    auto& [first, end] = pieces_[static_cast<size_t>(pieces[i].place.file)];
    if (end == 0) first = static_cast<int64_t>(i);
    end = static_cast<int64_t>(i) + 1;
  }
}

std::string StoreRun::UrlOf(std::string_view name) const { return io::JoinPath(conversion_.destination, name); }

absl::StatusOr<bool> StoreRun::IsComplete() {
  bool complete = false;
  RETURN_IF_ERROR(stores::AtOnce(2, [&](int64_t what) {
    if (what == 0) complete = conversion_.IsComplete();
    // What interrupted runs have left is not in the way, and this run continues its own job.
    if (what == 1) place_ = into_store::LookAt(*store_, conversion_.destination, job_.folder());
    return absl::OkStatus();
  }));
  return complete;
}

absl::Status StoreRun::Do() {
  RETURN_IF_ERROR(Enter());
  const absl::Status done = WriteAll();
  // Also if another worker has removed it: this one may have sent a heartbeat since.
  if (done.ok()) return job_.Remove();
  const CheckpointError kind = KindOf(done);
  if (kind != CheckpointError::kSystem && kind != CheckpointError::kPeer) {
    // Doing the same again would end the same way. An error of removing is not the one to report.
    Abandon().IgnoreError();
  }
  return done;
}

absl::Status StoreRun::WriteAll() {
  const into_store::Heartbeat heartbeat(job_);
  bool finished = false;
  for (int tried = 0; !finished; ++tried) {
    if (tried == kTries) {
      return io::FromSystem(absl::FailedPreconditionError(
          absl::StrCat("something else writes to ", conversion_.destination, ": objects there are replaced")));
    }
    RETURN_IF_ERROR(WriteMissing());
    meter_.Finish();
    if (is_over_) return absl::OkStatus();
    ASSIGN_OR_RETURN(finished, Finish());
  }
  return absl::OkStatus();
}

absl::Status StoreRun::Abandon() {
  // Nothing is removed of a result that is complete, or that others are writing.
  if (options_.workers > 1 || conversion_.IsComplete()) return absl::OkStatus();
  RETURN_IF_ERROR(Delete(conversion_.plan->FileNames()));
  return job_.Remove();
}

absl::Status StoreRun::Delete(absl::Span<const std::string> names) const {
  return into_store::DeleteAll(*store_, conversion_.destination, names);
}

absl::Status StoreRun::TidyUp() {
  ASSIGN_OR_RETURN(const StoreJob::Seen seen, job_.Look());
  if (!seen.exists) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> old, job_.Old());
  RETURN_IF_ERROR(Delete(old));
  return job_.Remove();
}

// Step 1, where nothing is in the way.
absl::Status StoreRun::Enter() {
  if (!place_.ok()) return place_.status();
  std::vector<std::string> names = conversion_.plan->FileNames();
  for (const AuxiliaryFile& file : conversion_.summary.side_files) names.push_back(file.to);
  names.emplace_back(source::kSidecarName);
  for (std::string& header : conversion_.plan->format().HeadersBeforeLast()) names.push_back(std::move(header));
  RETURN_IF_ERROR(into_store::CheckFree(*place_, conversion_.destination, options_.overwrite, job_.folder()));
  if (options_.restart) RETURN_IF_ERROR(job_.Remove());
  const bool is_left = std::any_of(place_->jobs.begin(), place_->jobs.end(),
                                   [this](const auto& left) { return left.folder == job_.folder(); });
  is_new_ = options_.workers == 1 && (options_.restart || !is_left);
  RETURN_IF_ERROR(job_.Begin(names));
  if (options_.overwrite || conversion_.summary.side_files.empty()) return absl::OkStatus();
  // Some readers take files of contents for a checkpoint as soon as all of them are there.
  const int64_t side_files = Objects() + 1;  // a claim that is not of an object
  if (options_.workers > 1) {
    ASSIGN_OR_RETURN(const bool claimed, job_.Claim(side_files));
    if (!claimed) return absl::OkStatus();
  }
  return CopySideFiles();
}

absl::Status StoreRun::CopySideFiles() {
  if (copied_) return absl::OkStatus();
  copied_ = true;
  return auxiliary_files::Copy(conversion_.catalog().root(), conversion_.summary.side_files, conversion_.destination);
}

bool StoreRun::IsOwn(int64_t object) const {
  // By the first of its pieces.
  const auto [first, end] = pieces_[static_cast<size_t>(object)];
  if (first == end) return options_.worker == 0;
  return first >= conversion_.share.first && first < conversion_.share.end;
}

std::vector<int64_t> StoreRun::InOrder(const std::vector<int64_t>& objects) const {
  std::vector<int64_t> ordered = objects;
  const auto begin = std::find_if(ordered.begin(), ordered.end(), [&](int64_t object) { return IsOwn(object); });
  std::rotate(ordered.begin(), begin, ordered.end());
  return ordered;
}

absl::Status StoreRun::WriteMissing() {
  const auto count = static_cast<int64_t>(conversion_.plan->files().size());
  Watch watch;
  auto got_on = Clock::now();
  size_t last_missing = static_cast<size_t>(count) + 1;
  for (bool first = true;; first = false) {
    StoreJob::Seen seen;
    if (!std::exchange(is_new_, false)) {
      ASSIGN_OR_RETURN(seen, job_.Look());
    }
    std::vector<int64_t> missing, free;
    std::set<int64_t> slow;
    for (int64_t i = 0; i < count; ++i) {
      if (!seen.done.contains(i)) missing.push_back(i);
    }
    if (first && options_.workers == 1) {  // otherwise another one may just have written it
      for (const int64_t i : seen.done) {
        if (i < count) conversion_.summary.kept_bytes += conversion_.plan->files()[static_cast<size_t>(i)].bytes;
      }
    }
    if (missing.empty()) return absl::OkStatus();
    // The worker that finished the job has removed all records of it.
    is_over_ = options_.workers > 1 && seen.done.empty() && conversion_.IsComplete();
    if (is_over_) return absl::OkStatus();
    if (watch.Tell(seen.beats) || missing.size() < last_missing) got_on = Clock::now();
    last_missing = missing.size();
    for (const int64_t object : InOrder(missing)) {
      const bool claimed = options_.workers > 1 && seen.claimed.contains(object);
      const int64_t by = claimed ? job_.ClaimedBy(object) : -1;
      const bool own = own_claims_[static_cast<size_t>(object)] != 0;
      if (claimed && by >= 0 && by != options_.worker && !watch.IsGone(by)) {
        slow.insert(by);
        continue;
      }
      // The claim of a worker that is gone, or of an earlier run of this one.
      if (claimed && !own) RETURN_IF_ERROR(job_.Forget(object));
      free.push_back(object);
    }
    RETURN_IF_ERROR(WriteObjects(conversion_, *store_, job_, pieces_, free, &own_claims_, &records_, &meter_));
    if (options_.workers == 1) return absl::OkStatus();
    if (!free.empty()) continue;
    if (options_.stop.stop_requested()) return tasks::Stopped();
    if (Clock::now() - got_on > absl::ToChronoNanoseconds(options_.stall_timeout)) {
      return io::WithKind(
          absl::DeadlineExceededError(absl::StrCat(
              slow.size() == 1 ? "worker " : "workers ", absl::StrJoin(slow, ", "), " of ", options_.workers,
              " did not finish, and none has made progress for ", absl::FormatDuration(options_.stall_timeout),
              "; what was written stays in ", conversion_.destination, ": start all workers again")),
          CheckpointError::kPeer);
    }
    std::this_thread::sleep_for(kLook);
  }
}

absl::Status StoreRun::CheckSource() const {
  const absl::StatusOr<std::string> changed = output::ChangedFile(conversion_.catalog());
  if (!changed.ok()) return io::FromSystem(changed.status());
  if (changed->empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the source was written to while it was read: ", *changed));
}

// Takes over the hashes of what all workers have written. False: an object is not what its record says, or has no
// usable record; it is to be written again.
absl::StatusOr<bool> StoreRun::Gather() {
  std::atomic<bool> all{true};
  const auto look = [&](int64_t i) -> absl::Status {
    const auto [first, end] = pieces_[static_cast<size_t>(i)];
    ASSIGN_OR_RETURN(const std::optional<into_store::ObjectRecord> record,
                     into_store::RightRecord(target(), i, conversion_.plan->files()[static_cast<size_t>(i)],
                                             static_cast<size_t>(end - first), records_[static_cast<size_t>(i)]));
    if (!record) {
      all = false;
      records_[static_cast<size_t>(i)] = {};
      return job_.Forget(i);
    }
    std::copy(record->hashes.begin(), record->hashes.end(), hashes_.begin() + first);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(stores::AtOnce(static_cast<int64_t>(conversion_.plan->files().size()), look));
  return all.load();
}

// Compares what the store has with what was read of the source.
absl::Status StoreRun::ReadBack(int64_t object) {
  const output::OutputPlan& plan = *conversion_.plan;
  const std::string url = UrlOf(plan.files()[static_cast<size_t>(object)].name);
  ASSIGN_OR_RETURN(const std::unique_ptr<io::ReadFile> file, io::ReadFile::Open(url));
  const auto [first, end] = pieces_[static_cast<size_t>(object)];
  std::string buffer;
  for (int64_t i = first; i < end; ++i) {
    const output::OutputPlan::OutputPiece& piece = plan.pieces()[static_cast<size_t>(i)];
    buffer.resize(static_cast<size_t>(piece.payload_bytes));
    if (!buffer.empty()) RETURN_IF_ERROR(file->ReadAt(piece.payload_at, absl::MakeSpan(buffer)));
    if (hash::ContentHash::Of(buffer) != hashes_[static_cast<size_t>(i)]) {
      RETURN_IF_ERROR(job_.Forget(object));
      return absl::InternalError(absl::StrCat("the result differs from the source in ", url));
    }
  }
  return absl::OkStatus();
}

// False: something is to be written again.
absl::StatusOr<bool> StoreRun::Finish() {
  const int64_t finish = Objects();  // a claim that is not of an object
  if (options_.workers > 1) {
    ASSIGN_OR_RETURN(const bool claimed, job_.Claim(finish));
    if (!claimed && job_.ClaimedBy(finish) != options_.worker) {
      RETURN_IF_ERROR(CheckSource());
      RETURN_IF_ERROR(AwaitCommit());
      if (conversion_.IsComplete()) return true;
    }
  }
  absl::StatusOr<bool> all = false;
  RETURN_IF_ERROR(stores::AtOnce(2, [&](int64_t what) {
    if (what == 0) return CheckSource();
    all = Gather();
    return absl::OkStatus();
  }));
  if (!all.ok() || !*all) return all;
  if (options_.verify) {
    RESHARD_LOG(kInfo, "reads the result back and compares it with the source");
    RETURN_IF_ERROR(stores::AtOnce(
        finish, [this](int64_t i) { return ReadBack(i); }, conversion_.buffers.threads));
  }
  RETURN_IF_ERROR(Commit());
  conversion_.summary.committed = true;
  return true;
}

// Waits until another worker has finished the job, or is gone.
absl::Status StoreRun::AwaitCommit() {
  const int64_t finish = Objects();
  Watch watch;
  while (!conversion_.IsComplete()) {
    ASSIGN_OR_RETURN(const StoreJob::Seen seen, job_.Look());
    watch.Tell(seen.beats);
    const int64_t by = job_.ClaimedBy(finish);
    if (by < 0 || watch.IsGone(by)) return absl::OkStatus();
    if (options_.stop.stop_requested()) return tasks::Stopped();
    std::this_thread::sleep_for(kLook);
  }
  return absl::OkStatus();
}

// Steps 3 and 4, and the first half of 5.
absl::Status StoreRun::Commit() {
  std::vector<std::string> old;
  if (options_.overwrite) {
    ASSIGN_OR_RETURN(old, job_.Old());
    if (old.empty()) {
      ASSIGN_OR_RETURN(old, into_store::FindOld(target(), options_.format, conversion_.plan->files(), options_.limits));
      if (!old.empty()) RETURN_IF_ERROR(job_.KeepOld(old));
    }
  }
  RETURN_IF_ERROR(CopySideFiles());
  ASSIGN_OR_RETURN(const auto headers, output::MakeHeaders(conversion_.catalog(), *conversion_.plan, conversion_.id,
                                                           hashes_, conversion_.made));
  RETURN_IF_ERROR(into_store::PutHeaders(target(), headers, !old.empty()));
  return Delete(old);
}

}  // namespace reshard::convert
