#include "checkpoint/io/staged_directory.h"

#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/remove_tree.h"
#include "checkpoint/io/show.h"
#include "checkpoint/io/stage_terms.h"
#include "checkpoint/io/system.h"
#include "checkpoint/io/whole_file.h"
#include "checkpoint/stores/url.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::io {
namespace {

constexpr size_t kLongestJob = 64;
// Starting over is needed only if another process has ended in between, so that every retry means that some job made
// progress.
constexpr int kMostTries = 100;

bool CannotRenameSo(int error) {
  return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP || error == ENOTTY || error == EXDEV;
}

// nullopt if there is nothing at `path`.
absl::StatusOr<std::optional<struct stat>> Look(const std::string& path) {
  struct stat facts;
  if (Uninterrupted([&] { return CurrentSystem().LStat(path.c_str(), &facts); }) == 0) return facts;
  if (errno == ENOENT) return std::nullopt;
  return SystemError(errno, "look at", path);
}

// Creates a directory; false if there was one already, which is fine.
absl::StatusOr<bool> MakeDirectory(const std::string& path, mode_t mode) {
  if (Uninterrupted([&] { return CurrentSystem().MkDir(path.c_str(), mode); }) == 0) return true;
  if (errno != EEXIST) return SystemError(errno, "create", path);
  ASSIGN_OR_RETURN(const FileKind kind, KindOf(path));
  if (kind == FileKind::kDirectory || kind == FileKind::kNothing) return false;
  return absl::FailedPreconditionError(absl::StrCat(path, " is in the way: it is not a directory"));
}

// Syncs a directory and all directories below it. Files were synced by those who wrote them.
absl::Status SyncDirectories(const std::string& top) {
  std::vector<std::string> partial = {top};
  while (!partial.empty()) {
    const std::string path = std::move(partial.back());
    partial.pop_back();
    ASSIGN_OR_RETURN(std::vector<std::string> names, ListDirectory(path));
    for (const std::string& name : names) {
      std::string below = JoinPath(path, name);
      ASSIGN_OR_RETURN(const FileKind kind, KindOf(below));
      if (kind == FileKind::kDirectory) partial.push_back(std::move(below));
    }
    RETURN_IF_ERROR(SyncDirectory(path));
  }
  return absl::OkStatus();
}

// The lines of STAGE/committing. Inode numbers are soon reused, so a directory that somebody has put at DST since may
// have the same number; but not the same time, which renaming a directory does not change.
std::string InodeLine(const struct stat& facts) { return absl::StrCat("inode ", facts.st_ino, "\n"); }
std::string TimeLine(const struct stat& facts) {
  return absl::StrCat("modified ", facts.st_mtim.tv_sec, " s ", facts.st_mtim.tv_nsec, " ns.\n");
}

}  // namespace

absl::StatusOr<std::unique_ptr<StagedDirectory>> StagedDirectory::Begin(const std::string& destination,
                                                                        std::string_view job,
                                                                        const StageOptions& options) {
  std::unique_ptr<StagedDirectory> staged(new StagedDirectory);
  staged->replace_ = options.replace;
  RETURN_IF_ERROR(staged->SetPlaces(destination, job, options.worker));
  for (int tries = 0; tries < kMostTries; ++tries) {
    ASSIGN_OR_RETURN(const bool begun, staged->TryToBegin(options));
    if (begun) return staged;
    staged->worker_lock_ = nullptr;
  }
  return absl::FailedPreconditionError(absl::StrCat("other processes keep starting and finishing in ", staged->stage_));
}

absl::Status StagedDirectory::SetPlaces(std::string_view destination, std::string_view job, int64_t worker) {
  bool plain = !job.empty() && job.size() <= kLongestJob && worker >= 0;
  for (const char c : job) plain = plain && absl::ascii_isalnum(static_cast<unsigned char>(c));
  if (!plain) {
    return absl::InvalidArgumentError(absl::StrCat("a job is named by 1 to 64 letters and digits, not ", Shown(job),
                                                   ", and its workers are numbered from 0, not ", worker));
  }
  if (stores::IsUrl(destination))
    return absl::InvalidArgumentError(
        "this is written to directories, not to URLs; reshard convert writes to stores, too");
  std::string_view path = destination;
  while (path.size() > 1) {
    if (path.back() != '/' && path.substr(path.size() - 2) != "/.") break;
    path.remove_suffix(1);
  }
  const size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  if (name.empty() || name == "." || name == ".." || path.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(Shown(destination), " is not a name for a new directory; give a subdirectory, such as ",
                     Shown(JoinPath(name.empty() ? "/" : std::string(path), "converted"))));
  }
  // Keeps its slash: "/" is "/".
  parent_ = slash == std::string_view::npos ? "./" : std::string(path.substr(0, slash + 1));
  destination_ = JoinPath(parent_, name);
  stage_ = absl::StrCat(parent_, ".", status::View(name), ".reshard-", status::View(job));
  data_ = JoinPath(stage_, "data");
  done_ = stage_ + ".done";
  gone_ = stage_ + ".gone";
  lock_name_ = absl::StrCat("lock-", worker);
  // The final "." has a symbolic link followed.
  ASSIGN_OR_RETURN(const std::optional<struct stat> parent, Look(JoinPath(parent_, ".")));
  return parent ? absl::OkStatus() : SystemError(ENOENT, "open", parent_);
}

// Whether there is a directory at DST. An error if there is something that cannot be replaced.
absl::StatusOr<bool> StagedDirectory::FindOld() const {
  ASSIGN_OR_RETURN(const std::optional<struct stat> old, Look(destination_));
  if (!old) return false;
  if (!S_ISDIR(old->st_mode)) {
    const char* const what = S_ISLNK(old->st_mode) ? " is a symbolic link" : " is not a directory";
    if (!replace_) return absl::AlreadyExistsError(absl::StrCat(destination_, " already exists, and", what));
    return absl::FailedPreconditionError(absl::StrCat(destination_, what, "; only a directory is replaced"));
  }
  if (!replace_) return true;
  ASSIGN_OR_RETURN(const std::optional<struct stat> parent, Look(JoinPath(parent_, ".")));
  // Names cannot be exchanged across filesystems: better to know that before the work than after it.
  if (parent && parent->st_dev != old->st_dev) {
    return absl::FailedPreconditionError(absl::StrCat(destination_, " is a mount point and cannot be replaced"));
  }
  return true;
}

// What STAGE/committing, which may have become STAGE.done/committing, says about step 5: only the inode tells a new DST
// from an old one, since both are just directories of that name.
absl::StatusOr<StagedDirectory::Progress> StagedDirectory::FindProgress(const std::string& stage) const {
  absl::StatusOr<std::unique_ptr<ReadFile>> file = ReadFile::Open(JoinPath(stage, "committing"));
  if (absl::IsNotFound(file.status())) return Progress::kNotBegun;
  if (!file.ok()) return file.status();
  constexpr int64_t kLongest = 128;
  ASSIGN_OR_RETURN(const std::string text, (*file)->ReadAll(kLongest));
  const absl::StatusOr<std::optional<struct stat>> top = Look(stage), data = Look(JoinPath(stage, "data")),
                                                   there = Look(destination_);
  for (const auto* looked : {&top, &data, &there}) {
    if (!looked->ok()) return looked->status();
  }
  const auto is_named = [&](const std::optional<struct stat>& facts, std::string_view by) {
    return *top && facts && facts->st_dev == (*top)->st_dev && absl::StartsWith(text, status::View(by));
  };
  if (*there && is_named(*there, InodeLine(**there) + TimeLine(**there))) return Progress::kMoved;
  // Without the time: before step 5 the job may have gone on to change the directory.
  if (*data && is_named(*data, InodeLine(**data))) return Progress::kNotMoved;
  // A torn file was not durable yet, and step 5 begins only once it is.
  return absl::EndsWith(text, ".\n") ? Progress::kLost : Progress::kNotBegun;
}

// False: another process has ended and removed the stage in between; try again.
absl::StatusOr<bool> StagedDirectory::TryToBegin(const StageOptions& options) {
  const bool resume = options.resume;
  committed_ = found_stale_staging_ = false;
  // What is at DST may be the result of this very job, interrupted in step 6 or 7; then it must neither be refused nor
  // be done again.
  ASSIGN_OR_RETURN(const bool old, FindOld());
  if (old && resume) {
    ASSIGN_OR_RETURN(const FileKind done, KindOf(done_));
    if (done == FileKind::kDirectory) {
      ASSIGN_OR_RETURN(const Progress progress, FindProgress(done_));
      // Its "committing" may have been removed already, since STAGE.done is removed file by file.
      committed_ = progress == Progress::kMoved || progress == Progress::kNotBegun;
      if (committed_) return true;  // nothing is left to be locked
    }
  }
  if (old && !replace_) {
    ASSIGN_OR_RETURN(const Progress progress, resume ? FindProgress(stage_) : Progress::kNotBegun);
    if (progress != Progress::kMoved) {
      return absl::AlreadyExistsError(
          absl::StrCat(destination_, " already exists; --overwrite (in Python overwrite=True) replaces it"));
    }
  }
  for (const std::string& left : {done_, gone_}) {
    RETURN_IF_ERROR(RemoveMoved(left));
  }

  ASSIGN_OR_RETURN(const bool made, MakeDirectory(stage_, 0700));
  // First the stage's lock, then the worker's: a process that is seen to hold a worker's lock has been through this,
  // and has agreed on the terms.
  ASSIGN_OR_RETURN(std::unique_ptr<FileLock> lock, LockStage());
  if (lock == nullptr) return false;
  ASSIGN_OR_RETURN(std::unique_ptr<FileLock> worker_lock, FileLock::Try(JoinPath(stage_, lock_name_)));
  if (worker_lock == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("another process is doing the same in ", stage_));
  }
  worker_lock_ = std::move(worker_lock);

  if (!made) {
    ASSIGN_OR_RETURN(const Progress progress, resume ? FindProgress(stage_) : Progress::kLost);
    if (progress == Progress::kLost) {
      RETURN_IF_ERROR(Discard(std::move(lock)));
      return false;
    }
    found_stale_staging_ = true;
    committed_ = progress == Progress::kMoved;
    if (committed_) return true;
  }
  absl::Status prepared = AgreeOnTerms(stage_, lock_name_, options.terms);
  if (prepared.ok()) prepared = Prepare(old);
  // Of two errors the first one is reported.
  if (!prepared.ok() && made) Discard(std::move(lock)).IgnoreError();
  if (!prepared.ok()) return prepared;
  return true;
}

absl::Status StagedDirectory::Prepare(bool exchange) {
  if (absl::StatusOr<bool> made = MakeDirectory(data_, 0777); !made.ok()) return made.status();
  ASSIGN_OR_RETURN(const std::optional<struct stat> data, Look(data_));
  if (!data) return SystemError(ENOENT, "look at", data_);
  inode_ = data->st_ino;
  for (const std::string& directory : {stage_, parent_}) {
    RETURN_IF_ERROR(SyncDirectory(directory));
  }
  return exchange ? TryExchange() : absl::OkStatus();
}

absl::Status StagedDirectory::TryExchange() const {
  const std::string a = JoinPath(stage_, "try-a"), b = JoinPath(stage_, "try-b");
  for (const std::string& path : {a, b}) {
    if (absl::StatusOr<bool> made = MakeDirectory(path, 0700); !made.ok()) return made.status();
  }
  absl::Status exchanged;
  if (Uninterrupted([&] { return CurrentSystem().RenameExchange(a.c_str(), b.c_str()); }) != 0) {
    exchanged = CannotRenameSo(errno)
                    ? absl::FailedPreconditionError(absl::StrCat(
                          destination_, " cannot be replaced: its filesystem cannot exchange two names at once"))
                    : SystemError(errno, "exchange names in", stage_);
  }
  for (const std::string& path : {a, b}) {
    absl::Status removed = RemoveTree(path);
    if (exchanged.ok()) exchanged = removed;
  }
  return exchanged;
}

// Takes the lock under which the stage is changed; null if the stage is gone. Having the lock is not enough: the stage
// may have been renamed away, lock file included, while this process was waiting for it.
absl::StatusOr<std::unique_ptr<FileLock>> StagedDirectory::LockStage() const {
  absl::StatusOr<std::unique_ptr<FileLock>> lock = FileLock::Wait(JoinPath(stage_, "lock"));
  if (absl::IsNotFound(lock.status())) return nullptr;
  if (!lock.ok()) return lock.status();
  ASSIGN_OR_RETURN(const bool in_place, (*lock)->IsInPlace());
  if (!in_place) return nullptr;
  return lock;
}

// The same for a worker; null also if this is not the stage in which it began.
absl::StatusOr<std::unique_ptr<FileLock>> StagedDirectory::EnterStage() const {
  if (worker_lock_ == nullptr) return nullptr;
  absl::StatusOr<std::unique_ptr<FileLock>> lock = LockStage();
  if (!lock.ok() || *lock == nullptr) return lock;
  ASSIGN_OR_RETURN(const bool in_place, worker_lock_->IsInPlace());
  if (!in_place) return nullptr;
  return lock;
}

absl::StatusOr<std::string> StagedDirectory::StageOf(const std::string& destination, std::string_view job) {
  StagedDirectory staged;
  RETURN_IF_ERROR(staged.SetPlaces(destination, job, 0));
  return staged.stage_;
}

bool StagedDirectory::HasStaleStaging(const std::string& destination, std::string_view job) {
  StagedDirectory staged;
  if (!staged.SetPlaces(destination, job, 0).ok()) return false;
  for (const std::string& path : {staged.stage_, staged.done_, staged.gone_}) {
    const absl::StatusOr<FileKind> kind = KindOf(path);
    if (kind.ok() && *kind != FileKind::kNothing) return true;
  }
  return false;
}

int64_t StagedDirectory::StagedBytes(const std::string& destination, std::string_view job) {
  constexpr int64_t kStatBlock = 512;  // of st_blocks, whatever the filesystem's own
  StagedDirectory staged;
  if (!staged.SetPlaces(destination, job, 0).ok()) return 0;
  int64_t bytes = 0;
  std::vector<std::string> partial = {staged.data_};
  while (!partial.empty()) {
    const std::string path = std::move(partial.back());
    partial.pop_back();
    const absl::StatusOr<std::optional<struct stat>> facts = Look(path);
    if (!facts.ok() || !*facts) continue;
    bytes += (*facts)->st_blocks * kStatBlock;
    if (!S_ISDIR((*facts)->st_mode)) continue;
    const absl::StatusOr<std::vector<std::string>> names = ListDirectory(path);
    if (!names.ok()) continue;
    for (const std::string& name : *names) partial.push_back(JoinPath(path, name));
  }
  return bytes;
}

absl::StatusOr<bool> StagedDirectory::IsInPlace() const {
  if (worker_lock_ == nullptr) return false;
  return worker_lock_->IsInPlace();
}

absl::StatusOr<bool> StagedDirectory::HasMoved() const {
  ASSIGN_OR_RETURN(const Progress progress, FindProgress(stage_));
  return progress == Progress::kMoved;
}

absl::Status StagedDirectory::Commit() {
  ASSIGN_OR_RETURN(std::unique_ptr<FileLock> lock, EnterStage());
  if (!committed_ && lock == nullptr) {
    // Another worker may have done it.
    ASSIGN_OR_RETURN(const std::optional<struct stat> there, Look(destination_));
    if (!there || there->st_ino != inode_) {
      return absl::FailedPreconditionError(absl::StrCat(stage_, " was removed; ", destination_, " is as it was"));
    }
    committed_ = true;
  }
  if (!committed_) {
    ASSIGN_OR_RETURN(const Progress progress, FindProgress(stage_));
    if (progress != Progress::kMoved) {
      RETURN_IF_ERROR(MoveIntoPlace());
    }
    committed_ = true;
  }
  absl::Status cleaned = CleanUp(std::move(lock));
  if (cleaned.ok()) return cleaned;
  return absl::Status(cleaned.code(), absl::StrCat(destination_, " is complete and in its place, but what is left of ",
                                                   stage_, " was not removed: ", cleaned.message()));
}

// Steps 4 and 5.
absl::Status StagedDirectory::MoveIntoPlace() {
  RETURN_IF_ERROR(SyncDirectories(data_));
  // Looked at only now that nothing changes STAGE/data any more: the time that is written down must stay true.
  ASSIGN_OR_RETURN(const std::optional<struct stat> data, Look(data_));
  if (!data || data->st_ino != inode_) return absl::FailedPreconditionError(absl::StrCat(data_, " was taken away"));
  const std::string committing = JoinPath(stage_, "committing");
  RETURN_IF_ERROR(WriteWholeFile(committing, InodeLine(*data) + TimeLine(*data)));
  RETURN_IF_ERROR(SyncDirectory(stage_));

  for (int tries = 0;; ++tries) {
    ASSIGN_OR_RETURN(const bool old, FindOld());
    if (old && !replace_) return absl::AlreadyExistsError(absl::StrCat(destination_, " has appeared meanwhile"));
    const int moved = Uninterrupted([&] {
      System& system = CurrentSystem();
      if (old) return system.RenameExchange(data_.c_str(), destination_.c_str());
      const int placed = system.RenameNoReplace(data_.c_str(), destination_.c_str());
      return placed == 0 || !CannotRenameSo(errno) ? placed : system.Rename(data_.c_str(), destination_.c_str());
    });
    const int error = errno;
    if (moved == 0) return absl::OkStatus();
    // Network filesystems may have done what they report as failed.
    const absl::StatusOr<Progress> progress = FindProgress(stage_);
    if (progress.ok() && *progress == Progress::kMoved) return absl::OkStatus();
    // Something else has created or removed DST in between: look again.
    const bool changed = error == EEXIST || error == ENOTEMPTY || error == ENOENT;
    if (!changed || tries == kMostTries) return SystemError(error, "put the new directory at", destination_);
  }
}

// Steps 6 and 7. Without a lock, STAGE has already become STAGE.done.
absl::Status StagedDirectory::CleanUp(std::unique_ptr<FileLock> lock) {
  if (lock != nullptr) {
    for (const std::string& directory : {parent_, stage_}) {
      RETURN_IF_ERROR(SyncDirectory(directory));
    }
    RETURN_IF_ERROR(MoveStage(done_));
  }
  lock = nullptr;
  worker_lock_ = nullptr;
  RETURN_IF_ERROR(RemoveMoved(done_));
  return SyncDirectory(parent_);
}

absl::Status StagedDirectory::Abandon() {
  ASSIGN_OR_RETURN(std::unique_ptr<FileLock> lock, EnterStage());
  return lock == nullptr ? RemoveMoved(gone_) : Discard(std::move(lock));
}

// Removes the stage unless other live processes use it.
absl::Status StagedDirectory::Discard(std::unique_ptr<FileLock> lock) {
  ASSIGN_OR_RETURN(const bool others, OthersLive(stage_, lock_name_));
  if (others) {
    worker_lock_ = nullptr;
    return absl::FailedPreconditionError(absl::StrCat("a running process works in ", stage_));
  }
  // STAGE/data may be what was at DST before: it is removed only when the new one is durably there.
  RETURN_IF_ERROR(SyncDirectory(parent_));
  RETURN_IF_ERROR(MoveStage(gone_));
  lock = nullptr;
  worker_lock_ = nullptr;
  return RemoveMoved(gone_);
}

absl::Status StagedDirectory::MoveStage(const std::string& to) const {
  RETURN_IF_ERROR(RemoveMoved(to));
  if (Uninterrupted([&] { return CurrentSystem().Rename(stage_.c_str(), to.c_str()); }) == 0) return absl::OkStatus();
  return SystemError(errno, "rename", stage_);
}

// Removes a stage that was renamed, once the renaming is durable: after a crash a half-removed stage must not be found
// under its old name.
absl::Status StagedDirectory::RemoveMoved(const std::string& path) const {
  ASSIGN_OR_RETURN(const FileKind kind, KindOf(path));
  if (kind == FileKind::kNothing) return absl::OkStatus();
  RETURN_IF_ERROR(SyncDirectory(parent_));
  return RemoveTree(path);
}

}  // namespace reshard::io
