// Creates or replaces a directory, DST, atomically and durably. Until the instant at which it appears, DST is what it
// was before, or does not exist; at no time is it half written, and a DST that is replaced is never missing.
//
// PARENT is the directory that DST is in, and may be a symbolic link; NAME is the last part of DST. The job works in
// STAGE = PARENT/.NAME.reshard-JOB, where JOB identifies the job, so that the same job finds its own leftovers again:
//
//   STAGE/data          becomes DST
//   STAGE/lock-K        locked by worker K for as long as it runs
//   STAGE/lock          locked by the process that is currently in Begin, Commit or Abandon
//   STAGE/terms         what the workers of the job have agreed on
//   STAGE/committing    the inode of STAGE/data and when it was last modified, durable before the first rename
//   STAGE/...           whatever else the job keeps for itself, such as its journals
//
// A stage is never emptied in place, where its remains could be mistaken for a stage that has just been begun. It is
// first renamed, to STAGE.done if DST is complete and to STAGE.gone otherwise, and then removed. A process that has
// taken a lock therefore checks that the locked file is still in STAGE, and starts over if it is not.
//
// The steps, each of which may be the last one that happens:
//
//   1  Begin. If there is a directory at DST that must not be replaced: AlreadyExists, and nothing was touched.
//      Anything that is not a directory (a symbolic link to one is not) is never replaced, nor is a mount point:
//      FailedPrecondition. What is left of STAGE.done and STAGE.gone is removed.
//   2  mkdir STAGE; lock STAGE/lock, then STAGE/lock-K (FailedPrecondition if a live process has it). So a process
//      that is seen to hold a lock-K has been through this step, and is not about to find out that it must not
//      continue. Leftovers of the same job are kept if it is resumed; otherwise they are renamed to STAGE.gone and
//      removed, unless a live process holds any lock-* there: FailedPrecondition. mkdir STAGE/data; sync PARENT and
//      STAGE. If DST is to be replaced, two empty directories in STAGE are used to test that the filesystem can
//      exchange names (renameat2 with RENAME_EXCHANGE); if it cannot, FailedPrecondition before any work is done.
//   3  The job writes into STAGE/data, and syncs each of its files.
//   4  Commit. Lock STAGE/lock. Sync STAGE/data and the directories in it. Write and sync STAGE/committing, sync STAGE.
//   5  If there is nothing at DST: renameat2(STAGE/data, DST, RENAME_NOREPLACE) or, if that is not supported,
//      rename, which replaces no directory but an empty one. Otherwise: renameat2(.., RENAME_EXCHANGE), after which
//      STAGE/data is what was at DST before. This is the instant at which DST changes.
//   6  Sync PARENT and STAGE.
//   7  Rename STAGE to STAGE.done, sync PARENT, remove STAGE.done; sync PARENT.
//
// A job that is resumed after it was interrupted between 5 and 7 sees that DST is what STAGE/committing names, or that
// there is a STAGE.done: it is complete, and only 6 and 7 remain. If neither DST nor STAGE/data is what
// STAGE/committing names, somebody has moved things: STAGE/data may then be what was at DST, with which the job cannot
// continue, and is removed.
//
// Workers 0 to N-1 of one job share STAGE if all of them resume; one of them commits once it knows that all are done,
// and for the others Commit then finds that this has happened. A process with other terms than those in STAGE/terms is
// refused while others are alive in STAGE; otherwise the terms are changed, and the caller has to decide about
// leftovers that were made under the old ones.
#ifndef RESHARD_CHECKPOINT_IO_STAGED_DIRECTORY_H_
#define RESHARD_CHECKPOINT_IO_STAGED_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/io/file_lock.h"

namespace reshard::io {

struct StageOptions {
  bool replace = false;  // a directory at DST may be replaced
  bool resume = false;   // go on with what an earlier run of the same job has staged, if anything
  int64_t worker = 0;
  std::string terms = {};  // a line or none: what all workers must agree on
};

class StagedDirectory {
 public:
  // Steps 1 and 2. `job` is 1 to 64 of [0-9a-zA-Z]. A relative destination starts at the working directory, which
  // must not change until the end; slashes and "." at its end do not matter. AlreadyExists, FailedPrecondition: above.
  // NotFound: PARENT. InvalidArgument: DST has no last part ("/", ".", "a/..").
  static absl::StatusOr<std::unique_ptr<StagedDirectory>> Begin(const std::string& destination, std::string_view job,
                                                                const StageOptions& options);
  // STAGE of a job of that name: for processes that write into a stage that another one has begun. Errors as Begin.
  static absl::StatusOr<std::string> StageOf(const std::string& destination, std::string_view job);
  // Whether a job of that name has left anything beside DST, or works there. False if that cannot be seen.
  static bool HasStaleStaging(const std::string& destination, std::string_view job);
  // The bytes that STAGE/data of a job of that name takes on disk; 0 if that cannot be seen.
  static int64_t StagedBytes(const std::string& destination, std::string_view job);
  // Gives up the lock; what was staged stays, for a job that resumes.
  ~StagedDirectory() = default;
  StagedDirectory(const StagedDirectory&) = delete;
  StagedDirectory& operator=(const StagedDirectory&) = delete;

  // Step 5 has happened: DST is complete, Commit finishes 6 and 7. Known after Begin when the job was resumed, and
  // after Commit, where it tells on which side of step 5 an error came.
  bool was_committed() const { return committed_; }
  // Resumed, and the stage was there already. What is in it may be anything: look before you trust it.
  bool found_stale_staging() const { return found_stale_staging_; }

  // Not to be used when was_committed().
  const std::string& stage() const { return stage_; }
  const std::string& data() const { return data_; }

  // Whether STAGE is still there. When not, Commit tells why.
  absl::StatusOr<bool> IsInPlace() const;
  // Whether step 5 has happened, in any process: nothing more must be written, and Commit does the rest.
  absl::StatusOr<bool> HasMoved() const;

  // Steps 4 to 7. An error before step 5 leaves DST as it was; after it, DST is the new one and the error tells what of
  // the cleanup is left. May be called again after an error. FailedPrecondition: STAGE was taken away.
  absl::Status Commit();
  // Removes STAGE; DST stays as it is. FailedPrecondition: other workers live in it. This one then no longer does, and
  // the last worker that abandons STAGE removes it.
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
  bool found_stale_staging_ = false;
  uint64_t inode_ = 0;  // of STAGE/data; 0 when step 5 had happened before Begin
  std::unique_ptr<FileLock> worker_lock_;
};

}  // namespace reshard::io

#endif  // RESHARD_CHECKPOINT_IO_STAGED_DIRECTORY_H_
