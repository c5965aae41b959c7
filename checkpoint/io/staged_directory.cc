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

namespace reshard {
namespace {

constexpr size_t kLongestJob = 64;
// Beginning again is needed when another process has ended in between, so each time somebody got on.
constexpr int kMostTries = 100;

bool CannotRenameSo(int error) {
  return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP || error == ENOTTY || error == EXDEV;
}

// Nothing when there is nothing at `path`.
absl::StatusOr<std::optional<struct stat>> Look(const std::string& path) {
  struct stat facts;
  if (Uninterrupted([&] { return CurrentSystem().LStat(path.c_str(), &facts); }) == 0) return facts;
  if (errno == ENOENT) return std::nullopt;
  return SystemError(errno, "look at", path);
}

// One that is there already will do, if it is a directory.
absl::StatusOr<bool> MakeDirectory(const std::string& path, mode_t mode) {
  if (Uninterrupted([&] { return CurrentSystem().MkDir(path.c_str(), mode); }) == 0) return true;
  if (errno != EEXIST) return SystemError(errno, "create", path);
  const absl::StatusOr<FileKind> kind = KindOf(path);
  if (!kind.ok()) return kind.status();
  if (*kind == FileKind::kDirectory || *kind == FileKind::kNothing) return false;
  return absl::FailedPreconditionError(absl::StrCat(path, " is in the way: it is no directory"));
}

// Syncs a directory and all below it.
absl::Status SyncDirectories(const std::string& top) {
  std::vector<std::string> pending = {top};
  while (!pending.empty()) {
    const std::string path = std::move(pending.back());
    pending.pop_back();
    absl::StatusOr<std::vector<std::string>> names = ListDirectory(path);
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      std::string below = JoinPath(path, name);
      const absl::StatusOr<FileKind> kind = KindOf(below);
      if (!kind.ok()) return kind.status();
      if (*kind == FileKind::kDirectory) pending.push_back(std::move(below));
    }
    if (absl::Status synced = SyncDirectory(path); !synced.ok()) return synced;
  }
  return absl::OkStatus();
}

// The lines of STAGE/committing. Numbers of inodes are soon used again, so a directory that somebody has since put at
// DST may have the same; but not the same time, which does not change when a directory is renamed.
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
  if (absl::Status set = staged->SetPlaces(destination, job, options.worker); !set.ok()) return set;
  for (int tries = 0; tries < kMostTries; ++tries) {
    const absl::StatusOr<bool> begun = staged->TryToBegin(options);
    if (!begun.ok()) return begun.status();
    if (*begun) return staged;
    staged->worker_lock_ = nullptr;
  }
  return absl::FailedPreconditionError(absl::StrCat("others keep beginning and ending in ", staged->stage_));
}

absl::Status StagedDirectory::SetPlaces(std::string_view destination, std::string_view job, int64_t worker) {
  bool plain = !job.empty() && job.size() <= kLongestJob && worker >= 0;
  for (const char c : job) plain = plain && absl::ascii_isalnum(static_cast<unsigned char>(c));
  if (!plain) {
    return absl::InvalidArgumentError(absl::StrCat("a job is named by 1 to 64 letters and digits, not ", Shown(job),
                                                   ", and its workers are numbered from 0, not ", worker));
  }
  std::string_view path = destination;
  while (path.size() > 1) {
    if (path.back() == '/') {
      path.remove_suffix(1);
    } else if (path.substr(path.size() - 2) == "/.") {
      path.remove_suffix(1);
    } else {
      break;
    }
  }
  const size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  if (name.empty() || name == "." || name == ".." || path.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(Shown(destination), " does not name a directory's entry"));
  }
  // Keeps its slash: "/" is "/".
  parent_ = slash == std::string_view::npos ? "./" : std::string(path.substr(0, slash + 1));
  destination_ = JoinPath(parent_, name);
  stage_ = absl::StrCat(parent_, ".", Abseil(name), ".reshard-", Abseil(job));
  data_ = JoinPath(stage_, "data");
  done_ = stage_ + ".done";
  gone_ = stage_ + ".gone";
  lock_name_ = absl::StrCat("lock-", worker);
  // The final "." has a symbolic link followed.
  const absl::StatusOr<std::optional<struct stat>> parent = Look(JoinPath(parent_, "."));
  if (!parent.ok()) return parent.status();
  return *parent ? absl::OkStatus() : SystemError(ENOENT, "open", parent_);
}

// Whether there is a directory at DST. Errors for what cannot be replaced.
absl::StatusOr<bool> StagedDirectory::FindOld() const {
  const absl::StatusOr<std::optional<struct stat>> old = Look(destination_);
  if (!old.ok()) return old.status();
  if (!*old) return false;
  if (!S_ISDIR((*old)->st_mode)) {
    const char* const what = S_ISLNK((*old)->st_mode) ? " is a symbolic link" : " is no directory";
    if (!replace_) return absl::AlreadyExistsError(absl::StrCat(destination_, " is there already, and", what));
    return absl::FailedPreconditionError(absl::StrCat(destination_, what, "; only a directory is replaced"));
  }
  if (!replace_) return true;
  const absl::StatusOr<std::optional<struct stat>> parent = Look(JoinPath(parent_, "."));
  if (!parent.ok()) return parent.status();
  if (*parent && (*parent)->st_dev != (*old)->st_dev) {
    return absl::FailedPreconditionError(absl::StrCat(destination_, " is a mount point and cannot be replaced"));
  }
  return true;
}

// What STAGE/committing, which may have become STAGE.done/committing, says about step 5.
absl::StatusOr<StagedDirectory::Progress> StagedDirectory::FindProgress(const std::string& stage) const {
  absl::StatusOr<std::unique_ptr<ReadFile>> file = ReadFile::Open(JoinPath(stage, "committing"));
  if (absl::IsNotFound(file.status())) return Progress::kNotBegun;
  if (!file.ok()) return file.status();
  constexpr int64_t kLongest = 128;
  const absl::StatusOr<std::string> text = (*file)->ReadAll(kLongest);
  if (!text.ok()) return text.status();
  const absl::StatusOr<std::optional<struct stat>> top = Look(stage), data = Look(JoinPath(stage, "data")),
                                                   there = Look(destination_);
  for (const auto* looked : {&top, &data, &there}) {
    if (!looked->ok()) return looked->status();
  }
  const auto is_named = [&](const std::optional<struct stat>& facts, std::string_view by) {
    return *top && facts && facts->st_dev == (*top)->st_dev && absl::StartsWith(*text, Abseil(by));
  };
  if (*there && is_named(*there, InodeLine(**there) + TimeLine(**there))) return Progress::kMoved;
  // Before step 5 the job may have gone on to change it.
  if (*data && is_named(*data, InodeLine(**data))) return Progress::kNotMoved;
  // A torn one was not durable, so step 5 had not begun.
  return absl::EndsWith(*text, ".\n") ? Progress::kLost : Progress::kNotBegun;
}

// False: another process has ended and taken the stage with it; to be tried again.
absl::StatusOr<bool> StagedDirectory::TryToBegin(const StageOptions& options) {
  const bool resume = options.resume;
  committed_ = found_leavings_ = false;
  const absl::StatusOr<bool> old = FindOld();
  if (!old.ok()) return old.status();
  if (*old && resume) {
    const absl::StatusOr<FileKind> done = KindOf(done_);
    if (!done.ok()) return done.status();
    if (*done == FileKind::kDirectory) {
      const absl::StatusOr<Progress> progress = FindProgress(done_);
      if (!progress.ok()) return progress.status();
      // Its "committing" may be removed already.
      committed_ = *progress == Progress::kMoved || *progress == Progress::kNotBegun;
      if (committed_) return true;  // nothing is left to be locked
    }
  }
  if (*old && !replace_) {
    const absl::StatusOr<Progress> progress = resume ? FindProgress(stage_) : Progress::kNotBegun;
    if (!progress.ok()) return progress.status();
    if (*progress != Progress::kMoved) {
      return absl::AlreadyExistsError(absl::StrCat(destination_, " is there already"));
    }
  }
  for (const std::string& left : {done_, gone_}) {
    if (absl::Status removed = RemoveMoved(left); !removed.ok()) return removed;
  }

  const absl::StatusOr<bool> made = MakeDirectory(stage_, 0700);
  if (!made.ok()) return made.status();
  // First the stage, then the worker: whoever is seen to hold a worker's lock is past this and has agreed.
  absl::StatusOr<std::unique_ptr<FileLock>> lock = LockStage();
  if (!lock.ok()) return lock.status();
  if (*lock == nullptr) return false;
  absl::StatusOr<std::unique_ptr<FileLock>> worker_lock = FileLock::Try(JoinPath(stage_, lock_name_));
  if (!worker_lock.ok()) return worker_lock.status();
  if (*worker_lock == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("a living process does the same in ", stage_));
  }
  worker_lock_ = *std::move(worker_lock);

  if (!*made) {
    const absl::StatusOr<Progress> progress = resume ? FindProgress(stage_) : Progress::kLost;
    if (!progress.ok()) return progress.status();
    if (*progress == Progress::kLost) {
      if (absl::Status discarded = Discard(*std::move(lock)); !discarded.ok()) return discarded;
      return false;
    }
    found_leavings_ = true;
    committed_ = *progress == Progress::kMoved;
    if (committed_) return true;
  }
  absl::Status prepared = AgreeOnTerms(stage_, lock_name_, options.terms);
  if (prepared.ok()) prepared = Prepare(*old);
  if (!prepared.ok() && *made) Discard(*std::move(lock)).IgnoreError();  // the first error is the news
  if (!prepared.ok()) return prepared;
  return true;
}

absl::Status StagedDirectory::Prepare(bool exchange) {
  if (absl::StatusOr<bool> made = MakeDirectory(data_, 0777); !made.ok()) return made.status();
  const absl::StatusOr<std::optional<struct stat>> data = Look(data_);
  if (!data.ok()) return data.status();
  if (!*data) return SystemError(ENOENT, "look at", data_);
  inode_ = (*data)->st_ino;
  for (const std::string& directory : {stage_, parent_}) {
    if (absl::Status synced = SyncDirectory(directory); !synced.ok()) return synced;
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

// The lock of those who change the stage; null when the stage is no longer there.
absl::StatusOr<std::unique_ptr<FileLock>> StagedDirectory::LockStage() const {
  absl::StatusOr<std::unique_ptr<FileLock>> lock = FileLock::Wait(JoinPath(stage_, "lock"));
  if (absl::IsNotFound(lock.status())) return nullptr;
  if (!lock.ok()) return lock.status();
  const absl::StatusOr<bool> in_place = (*lock)->IsInPlace();
  if (!in_place.ok()) return in_place.status();
  if (!*in_place) return nullptr;
  return lock;
}

// The same for a worker; null also when the stage is not the one that it began in.
absl::StatusOr<std::unique_ptr<FileLock>> StagedDirectory::EnterStage() const {
  if (worker_lock_ == nullptr) return nullptr;
  absl::StatusOr<std::unique_ptr<FileLock>> lock = LockStage();
  if (!lock.ok() || *lock == nullptr) return lock;
  const absl::StatusOr<bool> in_place = worker_lock_->IsInPlace();
  if (!in_place.ok()) return in_place.status();
  if (!*in_place) return nullptr;
  return lock;
}

absl::StatusOr<std::string> StagedDirectory::StageOf(const std::string& destination, std::string_view job) {
  StagedDirectory staged;
  if (absl::Status set = staged.SetPlaces(destination, job, 0); !set.ok()) return set;
  return staged.stage_;
}

bool StagedDirectory::HasLeavings(const std::string& destination, std::string_view job) {
  StagedDirectory staged;
  if (!staged.SetPlaces(destination, job, 0).ok()) return false;
  for (const std::string& path : {staged.stage_, staged.done_, staged.gone_}) {
    const absl::StatusOr<FileKind> kind = KindOf(path);
    if (kind.ok() && *kind != FileKind::kNothing) return true;
  }
  return false;
}

absl::StatusOr<bool> StagedDirectory::IsInPlace() const {
  if (worker_lock_ == nullptr) return false;
  return worker_lock_->IsInPlace();
}

absl::StatusOr<bool> StagedDirectory::HasMoved() const {
  const absl::StatusOr<Progress> progress = FindProgress(stage_);
  if (!progress.ok()) return progress.status();
  return *progress == Progress::kMoved;
}

absl::Status StagedDirectory::Commit() {
  absl::StatusOr<std::unique_ptr<FileLock>> lock = EnterStage();
  if (!lock.ok()) return lock.status();
  if (!committed_ && *lock == nullptr) {
    // Another worker may have done it.
    const absl::StatusOr<std::optional<struct stat>> there = Look(destination_);
    if (!there.ok()) return there.status();
    if (!*there || (*there)->st_ino != inode_) {
      return absl::FailedPreconditionError(absl::StrCat(stage_, " was taken away; ", destination_, " is as it was"));
    }
    committed_ = true;
  }
  if (!committed_) {
    const absl::StatusOr<Progress> progress = FindProgress(stage_);
    if (!progress.ok()) return progress.status();
    if (*progress != Progress::kMoved) {
      if (absl::Status moved = MoveIntoPlace(); !moved.ok()) return moved;
    }
    committed_ = true;
  }
  absl::Status cleaned = CleanUp(*std::move(lock));
  if (cleaned.ok()) return cleaned;
  return absl::Status(cleaned.code(), absl::StrCat(destination_, " is complete and in its place, but what is left of ",
                                                   stage_, " was not removed: ", cleaned.message()));
}

// Steps 4 and 5.
absl::Status StagedDirectory::MoveIntoPlace() {
  if (absl::Status synced = SyncDirectories(data_); !synced.ok()) return synced;
  const absl::StatusOr<std::optional<struct stat>> data = Look(data_);
  if (!data.ok()) return data.status();
  if (!*data || (*data)->st_ino != inode_) return absl::FailedPreconditionError(absl::StrCat(data_, " was taken away"));
  const std::string committing = JoinPath(stage_, "committing");
  if (absl::Status put = WriteWholeFile(committing, InodeLine(**data) + TimeLine(**data)); !put.ok()) return put;
  if (absl::Status synced = SyncDirectory(stage_); !synced.ok()) return synced;

  for (int tries = 0;; ++tries) {
    const absl::StatusOr<bool> old = FindOld();
    if (!old.ok()) return old.status();
    if (*old && !replace_) return absl::AlreadyExistsError(absl::StrCat(destination_, " has appeared meanwhile"));
    const int moved = Uninterrupted([&] {
      System& system = CurrentSystem();
      if (*old) return system.RenameExchange(data_.c_str(), destination_.c_str());
      const int placed = system.RenameNoReplace(data_.c_str(), destination_.c_str());
      return placed == 0 || !CannotRenameSo(errno) ? placed : system.Rename(data_.c_str(), destination_.c_str());
    });
    const int error = errno;
    if (moved == 0) return absl::OkStatus();
    // Filesystems over a network may have done what they report as failed.
    const absl::StatusOr<Progress> progress = FindProgress(stage_);
    if (progress.ok() && *progress == Progress::kMoved) return absl::OkStatus();
    // Somebody else made or removed DST just now.
    const bool changed = error == EEXIST || error == ENOTEMPTY || error == ENOENT;
    if (!changed || tries == kMostTries) return SystemError(error, "put the new directory at", destination_);
  }
}

// Steps 6 and 7. Without a lock, STAGE is STAGE.done already.
absl::Status StagedDirectory::CleanUp(std::unique_ptr<FileLock> lock) {
  if (lock != nullptr) {
    for (const std::string& directory : {parent_, stage_}) {
      if (absl::Status synced = SyncDirectory(directory); !synced.ok()) return synced;
    }
    if (absl::Status moved = MoveStage(done_); !moved.ok()) return moved;
  }
  lock = nullptr;
  worker_lock_ = nullptr;
  if (absl::Status removed = RemoveMoved(done_); !removed.ok()) return removed;
  return SyncDirectory(parent_);
}

absl::Status StagedDirectory::Abandon() {
  absl::StatusOr<std::unique_ptr<FileLock>> lock = EnterStage();
  if (!lock.ok()) return lock.status();
  return *lock == nullptr ? RemoveMoved(gone_) : Discard(*std::move(lock));
}

// Removes the stage unless others live in it.
absl::Status StagedDirectory::Discard(std::unique_ptr<FileLock> lock) {
  const absl::StatusOr<bool> others = OthersLive(stage_, lock_name_);
  if (!others.ok()) return others.status();
  if (*others) {
    worker_lock_ = nullptr;
    return absl::FailedPreconditionError(absl::StrCat("a living process works in ", stage_));
  }
  // STAGE/data may be what was at DST: it goes only when the new one is surely there.
  if (absl::Status synced = SyncDirectory(parent_); !synced.ok()) return synced;
  if (absl::Status moved = MoveStage(gone_); !moved.ok()) return moved;
  lock = nullptr;
  worker_lock_ = nullptr;
  return RemoveMoved(gone_);
}

absl::Status StagedDirectory::MoveStage(const std::string& to) const {
  if (absl::Status removed = RemoveMoved(to); !removed.ok()) return removed;
  if (Uninterrupted([&] { return CurrentSystem().Rename(stage_.c_str(), to.c_str()); }) == 0) return absl::OkStatus();
  return SystemError(errno, "rename", stage_);
}

// Removes a stage that was renamed, once it is sure that it will not be found under its old name again.
absl::Status StagedDirectory::RemoveMoved(const std::string& path) const {
  const absl::StatusOr<FileKind> kind = KindOf(path);
  if (!kind.ok()) return kind.status();
  if (*kind == FileKind::kNothing) return absl::OkStatus();
  if (absl::Status synced = SyncDirectory(parent_); !synced.ok()) return synced;
  return RemoveTree(path);
}

}  // namespace reshard
