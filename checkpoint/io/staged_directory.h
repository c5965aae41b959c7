// Puts a directory in its place at once and durably: until then there is nothing at DST, or what was there before; at
// no instant something half written, and never nothing where there was something.
//
// PARENT is DST's directory, and may be a symbolic link; NAME is DST's last part. The job works in
// STAGE = PARENT/.NAME.reshard-JOB, where JOB names what is being done, so that the same job finds its own leavings
// again:
//
//   STAGE/data          becomes DST
//   STAGE/lock-K        locked by worker K for as long as it runs
//   STAGE/lock          locked by who is in Begin, Commit or Abandon just now
//   STAGE/terms         what the workers of the job have agreed on
//   STAGE/committing    the inode of STAGE/data and when it was last modified, durable before the first rename
//   STAGE/...           whatever else the job keeps for itself, its journals for instance
//
// A stage is never emptied in its place, where its inhabitants could be mistaken for a young one's: it is renamed away
// at once, to STAGE.done when DST is complete and to STAGE.gone otherwise, and then removed. Who holds a lock looks
// whether it still lies in STAGE, and begins again when it does not.
//
// The steps, each of which may be the last one that happens:
//
//   1  Begin. A directory at DST that must not be replaced: AlreadyExists, nothing was touched. What is no directory (a
//      symbolic link to one is none) is never replaced, nor is a mount point: FailedPrecondition. What is left of
//      STAGE.done and STAGE.gone is removed.
//   2  mkdir STAGE; lock STAGE/lock, then STAGE/lock-K (FailedPrecondition when a living process has it): who is seen to
//      hold a lock-K has been through this step, and is not about to find out that it must not go on. Leavings of the
//      same job are kept when it is resumed; otherwise they are renamed to STAGE.gone and removed, unless a living
//      process holds any lock-* there: FailedPrecondition. mkdir STAGE/data; sync PARENT and STAGE. DST to be replaced:
//      tried out on two empty directories in STAGE that the filesystem can exchange names (renameat2 with
//      RENAME_EXCHANGE); where it cannot, FailedPrecondition before any work.
//   3  The job writes into STAGE/data, and syncs each of its files.
//   4  Commit. Lock STAGE/lock. Sync STAGE/data and the directories in it. Write and sync STAGE/committing, sync STAGE.
//   5  Nothing at DST: renameat2(STAGE/data, DST, RENAME_NOREPLACE), or, where that is not to be had, rename, which
//      replaces no directory but an empty one. Something: renameat2(.., RENAME_EXCHANGE), after which STAGE/data is
//      what was there before. This is the instant at which DST changes.
//   6  Sync PARENT and STAGE.
//   7  Rename STAGE to STAGE.done, sync PARENT, remove STAGE.done; sync PARENT.
//
// A job that is resumed after it was cut off between 5 and 7 sees that DST is what STAGE/committing names, or that
// there is a STAGE.done: it is complete, and only 6 and 7 remain. Where neither DST nor STAGE/data is what
// STAGE/committing names, somebody has moved things: STAGE/data may be what was at DST, nothing to go on with, and is
// removed.
//
// Workers 0 to N-1 of one job share STAGE when all of them resume; one of them commits once it knows that all are done,
// and for the others Commit then finds that it has happened. Who comes with other terms than those in STAGE/terms is
// refused while others live in STAGE; otherwise the terms are changed, and leavings made under the old ones stay for
// the caller to judge.
#ifndef RESHARD_CHECKPOINT_IO_STAGED_DIRECTORY_H_
#define RESHARD_CHECKPOINT_IO_STAGED_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/io/file_lock.h"

namespace reshard {

struct StageOptions {
  bool replace = false;  // a directory at DST may be replaced
  bool resume = false;   // go on with the leavings of the same job, if there are any
  int64_t worker = 0;
  std::string terms = {};  // a line or none: what all workers must agree on
};

class StagedDirectory {
 public:
  // Steps 1 and 2. `job` is 1 to 64 of [0-9a-zA-Z]. A relative destination is meant from the working directory, which
  // must not change until the end; slashes and "." at its end do not matter. AlreadyExists, FailedPrecondition: above.
  // NotFound: PARENT. InvalidArgument: DST has no last part ("/", ".", "a/..").
  static absl::StatusOr<std::unique_ptr<StagedDirectory>> Begin(const std::string& destination, std::string_view job,
                                                                const StageOptions& options);
  // STAGE of a job of that name: for processes that write into what another one has begun. Errors as Begin.
  static absl::StatusOr<std::string> StageOf(const std::string& destination, std::string_view job);
  // Whether a job of that name has left anything beside DST, or works there. False where that is not to be seen.
  static bool HasLeavings(const std::string& destination, std::string_view job);
  // Gives up the lock; what was staged stays, for a job that resumes.
  ~StagedDirectory() = default;
  StagedDirectory(const StagedDirectory&) = delete;
  StagedDirectory& operator=(const StagedDirectory&) = delete;

  // Step 5 has happened: DST is complete, Commit finishes 6 and 7. Known after Begin when the job was resumed, and
  // after Commit, where it tells on which side of step 5 an error came.
  bool was_committed() const { return committed_; }
  // Resumed, and the stage was there already. What is in it may be anything: look before you trust it.
  bool found_leavings() const { return found_leavings_; }

  // Not to be used when was_committed().
  const std::string& stage() const { return stage_; }
  const std::string& data() const { return data_; }

  // Whether STAGE is still there. When not, Commit tells why.
  absl::StatusOr<bool> IsInPlace() const;
  // Step 5 has happened, by whomever: no more is to be written, and Commit does the rest.
  absl::StatusOr<bool> HasMoved() const;

  // Steps 4 to 7. An error before step 5 leaves DST as it was; after it, DST is the new one and the error tells what of
  // the cleaning up is left. May be called again after an error. FailedPrecondition: STAGE was taken away.
  absl::Status Commit();
  // Removes STAGE; DST stays as it is. FailedPrecondition: other workers live in it. After that this one does not, and
  // the last of those who abandon it removes it.
  absl::Status Abandon();

 private:
  // No step 4; step 5 is yet to come; step 5 has happened; step 4 has, but then somebody has moved things.
  enum class Progress { kNotBegun, kNotMoved, kMoved, kLost };

  StagedDirectory() = default;
  absl::Status SetPlaces(std::string_view destination, std::string_view job, int64_t worker);
  absl::StatusOr<bool> TryToBegin(const StageOptions& options);
  absl::Status Prepare(bool exchange);
  absl::Status TryExchange() const;
  absl::StatusOr<bool> FindOld() const;
  absl::StatusOr<Progress> FindProgress(const std::string& stage) const;
  absl::StatusOr<std::unique_ptr<FileLock>> LockStage() const;
  absl::StatusOr<std::unique_ptr<FileLock>> EnterStage() const;
  absl::Status MoveIntoPlace();
  absl::Status MoveStage(const std::string& to) const;
  absl::Status RemoveMoved(const std::string& path) const;
  absl::Status CleanUp(std::unique_ptr<FileLock> lock);
  absl::Status Discard(std::unique_ptr<FileLock> lock);

  std::string destination_, parent_, stage_, data_, done_, gone_;
  std::string lock_name_;  // of the worker
  bool replace_ = false;
  bool committed_ = false;
  bool found_leavings_ = false;
  uint64_t inode_ = 0;  // of STAGE/data; 0 when step 5 had happened before Begin
  std::unique_ptr<FileLock> worker_lock_;
};

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_IO_STAGED_DIRECTORY_H_
