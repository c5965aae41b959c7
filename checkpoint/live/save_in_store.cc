#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "checkpoint/into_store/commit.h"
#include "checkpoint/into_store/heartbeat.h"
#include "checkpoint/into_store/occupancy.h"
#include "checkpoint/into_store/store_job.h"
#include "checkpoint/io/error_kind.h"
#include "checkpoint/io/files.h"
#include "checkpoint/live/save_place.h"
#include "checkpoint/output/headers.h"
#include "checkpoint/output/object_sink.h"
#include "checkpoint/source/sidecar.h"
#include "checkpoint/stores/at_once.h"
#include "checkpoint/stores/registry.h"
#include "status/log.h"
#include "status/macros.h"

namespace reshard::live {
namespace {

using into_store::StoreJob;

// A text that no other save has.
std::string NewAttempt() {
  std::random_device random;
  return absl::StrFormat("%08x%08x%08x", random(), random(), random());
}

// The object of a rank, and the record of it.
class ObjectOfRank final : public SaveFile {
 public:
  ObjectOfRank(const StoreJob& job, int32_t file, absl::Span<const size_t> pieces,
               std::unique_ptr<output::ObjectSink> sink)
      : job_(job), file_(file), pieces_(pieces.begin(), pieces.end()), sink_(std::move(sink)) {}

  absl::Status WriteAt(int64_t at, std::string_view bytes) override { return sink_->WriteAt(file_, at, bytes); }
  absl::Status Note(size_t piece, const hash::ContentSums& sums) override {
    const size_t next = record_.hashes.size();
    if (next >= pieces_.size() || pieces_[next] != piece) return absl::InternalError("a part out of order");
    record_.hashes.push_back(sums.hash());
    return absl::OkStatus();
  }
  absl::Status Finish() override {
    ASSIGN_OR_RETURN(record_.object, sink_->Finish());
    return job_.MarkDone(file_, record_);
  }

 private:
  const StoreJob& job_;
  const int32_t file_;
  const std::vector<size_t> pieces_;
  const std::unique_ptr<output::ObjectSink> sink_;
  into_store::ObjectRecord record_;
};

class StorePlace final : public SavePlace {
 public:
  StorePlace(stores::Destination at, const SavePlan& saved)
      : at_(std::move(at)), saved_(saved), folder_(StoreJob(at_.store, at_.url, saved.job, "", 0).folder()) {}

  bool is_in_order() const override { return true; }

  absl::Status Begin() override {
    ASSIGN_OR_RETURN(const into_store::Occupancy place, into_store::LookAt(*at_.store, at_.url));
    RETURN_IF_ERROR(into_store::CheckFree(place, at_.url, saved_.overwrite));
    // A save is never continued.
    for (const into_store::LeftJob& job : place.jobs) {
      RETURN_IF_ERROR(into_store::RemoveLeft(*at_.store, at_.url, job));
    }
    const std::string attempt = NewAttempt();
    replaces_ = !place.others.empty();
    if (replaces_) NameFiles(attempt.substr(0, 8));
    Belong(attempt);
    if (replaces_) {
      ASSIGN_OR_RETURN(old_, into_store::FindOld(target(), CheckpointFormat::kDcp, saved_.plan.files(), {}));
    }
    std::vector<std::string> names = saved_.plan.FileNames();
    names.emplace_back(source::kSidecarName);
    RETURN_IF_ERROR(job_->Begin(names));
    has_begun_ = true;
    if (!old_.empty()) RETURN_IF_ERROR(job_->KeepOld(old_));
    RETURN_IF_ERROR(job_->SetAttempt(attempt));
    heartbeat_.emplace(*job_);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<SaveFile>> Create(int32_t file, absl::Span<const size_t> pieces) override {
    if (!job_) RETURN_IF_ERROR(Join());
    const output::OutputPlan::File& planned = saved_.plan.files()[static_cast<size_t>(file)];
    std::vector<Catalog::FileRange> places;
    for (const size_t piece : pieces) places.push_back(saved_.plan.pieces()[piece].place);
    ASSIGN_OR_RETURN(std::unique_ptr<ObjectUpload> upload,
                     at_.store->Begin(io::JoinPath(at_.url, planned.name), planned.bytes, kUploadMemory));
    ASSIGN_OR_RETURN(std::unique_ptr<output::ObjectSink> sink,
                     output::ObjectSink::Begin(planned, file, std::move(places), std::move(upload)));
    return std::make_unique<ObjectOfRank>(*job_, file, pieces, std::move(sink));
  }

  absl::Status Commit() override {
    std::vector<std::vector<size_t>> pieces(saved_.plan.files().size());
    for (size_t i = 0; i < saved_.plan.pieces().size(); ++i) {
      pieces[static_cast<size_t>(saved_.plan.pieces()[i].place.file)].push_back(i);
    }
    std::vector<hash::ContentHash> hashes(saved_.plan.pieces().size());
    const auto gather = [&](int64_t f) -> absl::Status {
      const output::OutputPlan::File& file = saved_.plan.files()[static_cast<size_t>(f)];
      const std::vector<size_t>& own = pieces[static_cast<size_t>(f)];
      ASSIGN_OR_RETURN(const std::optional<into_store::ObjectRecord> record,
                       into_store::RightRecord(target(), f, file, own.size()));
      if (!record) {
        return io::FromSystem(absl::FailedPreconditionError(absl::StrCat(
            io::JoinPath(at_.url, file.name),
            " is not what its rank wrote: something else writes there, or the store returned an older version")));
      }
      for (size_t p = 0; p < own.size(); ++p) hashes[own[p]] = record->hashes[p];
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(stores::AtOnce(static_cast<int64_t>(pieces.size()), gather));
    ASSIGN_OR_RETURN(const auto headers, output::MakeHeaders(saved_.catalog, saved_.plan, saved_.job, hashes));
    is_committing_ = true;
    RETURN_IF_ERROR(into_store::PutHeaders(target(), headers, replaces_));
    // The checkpoint is there. The next save to the same URL, or --clean, removes what cannot be removed now.
    absl::Status tidied = into_store::DeleteAll(*at_.store, at_.url, old_);
    heartbeat_.reset();
    if (tidied.ok()) tidied = job_->Remove();
    if (!tidied.ok()) RESHARD_LOG(kInfo, "after saving to ", at_.url, ": ", tidied.message());
    return absl::OkStatus();
  }

  void Abandon(bool all_ended) override {
    heartbeat_.reset();
    // The names in the job's folder then lead to what a lost rank may still write, or what has appeared although the
    // store reported an error.
    if (!has_begun_ || !all_ended || is_committing_) return;
    if (into_store::DeleteAll(*at_.store, at_.url, saved_.plan.FileNames()).ok()) job_->Remove().IgnoreError();
  }

 private:
  into_store::Target target() const { return {*at_.store, at_.url, *job_}; }

  // From now on this rank's records belong to `attempt`.
  void Belong(const std::string& attempt) { job_.emplace(at_.store, at_.url, saved_.job, attempt, saved_.rank); }

  // "__3_0.distcp" becomes "__3_0-TAG.distcp".
  void NameFiles(const std::string& tag) {
    for (size_t f = 0; f < saved_.plan.files().size(); ++f) {
      const std::string& name = saved_.plan.files()[f].name;
      const absl::string_view stem = absl::StripSuffix(name, ".distcp");
      saved_.plan.NameFile(static_cast<int32_t>(f), absl::StrCat(stem, "-", tag, ".distcp"));
    }
  }

  // Joins the save that the coordinator has begun.
  absl::Status Join() {
    const auto seen = [&](const absl::Status& status) -> absl::Status {
      if (!absl::IsNotFound(status)) return status;
      return absl::NotFoundError(absl::StrCat(status.message(), "; do all ranks see the same store?"));
    };
    const absl::StatusOr<std::string> attempt = StoreJob::AttemptOf(*at_.store, folder_);
    RETURN_IF_ERROR(seen(attempt.status()));
    const absl::StatusOr<std::vector<std::string>> names = StoreJob::NamesOf(*at_.store, folder_);
    RETURN_IF_ERROR(seen(names.status()));
    if (names->size() != saved_.plan.files().size() + 1) {
      return io::FromSystem(absl::FailedPreconditionError(absl::StrCat("another job is writing to ", at_.url)));
    }
    for (size_t f = 0; f + 1 < names->size(); ++f) saved_.plan.NameFile(static_cast<int32_t>(f), (*names)[f]);
    Belong(*attempt);
    return absl::OkStatus();
  }

  const stores::Destination at_;
  const SavePlan saved_;
  const std::string folder_;
  std::optional<StoreJob> job_;
  // On the coordinator only.
  bool replaces_ = false;
  bool has_begun_ = false;
  bool is_committing_ = false;
  std::vector<std::string> old_;
  std::optional<into_store::Heartbeat> heartbeat_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SavePlace>> PlaceInStore(const std::string& url, const SavePlan& saved) {
  ASSIGN_OR_RETURN(stores::Destination at, stores::DestinationAt(url));
  return std::make_unique<StorePlace>(std::move(at), saved);
}

}  // namespace reshard::live
