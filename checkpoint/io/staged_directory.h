// Puts a directory in its place at once and durably: until then there is nothing at DST, or what was there before; at
// no instant something half written, and never nothing where there was something.
//
// PARENT is DST's directory. The job works in STAGE = PARENT/.NAME.reshard-JOB, where JOB names what is being done, so
// that the same job finds its own leavings again:
//
//   STAGE/data          becomes DST
//   STAGE/lock-K        locked (flock) by worker K for as long as it runs
//   STAGE/committing    device and inode of STAGE/data, durable before the first rename
//   STAGE/...           whatever else the job keeps for itself, its journals for instance
//
// The steps, each of which may be the last one that happens:
//
//   1  Begin. DST exists and must not be replaced: AlreadyExists, nothing was touched. To be replaced: tried out in
//      PARENT that names can be exchanged there (renameat2 with RENAME_EXCHANGE over two empty directories of our own);
//      where they cannot, FailedPrecondition before any work.
//   2  mkdir STAGE, STAGE/data; lock STAGE/lock-K; sync PARENT. Leavings of the same job are kept when it is resumed,
//      and removed otherwise, unless a living process holds a lock there: FailedPrecondition.
//   3  The job writes into STAGE/data, and syncs each of its files.
//   4  Commit. Sync STAGE/data and the directories in it. Write and sync STAGE/committing, sync STAGE.
//   5  Nothing at DST: renameat2(STAGE/data, DST, RENAME_NOREPLACE). Something: renameat2(.., RENAME_EXCHANGE), after
//      which STAGE/data is what was there before. This is the instant at which DST changes.
//   6  Sync PARENT and STAGE.
//   7  Remove STAGE with all that is in it; sync PARENT.
//
// A job that is resumed after it was cut off between 5 and 7 sees that DST has the inode in STAGE/committing: it is
// complete, and only 6 and 7 remain.
#ifndef RESHARD_CHECKPOINT_IO_STAGED_DIRECTORY_H_
#define RESHARD_CHECKPOINT_IO_STAGED_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reshard {

struct StageOptions {
  bool replace = false;  // something at DST may be replaced
  bool resume = false;   // go on with the leavings of the same job, if there are any
  int64_t worker = 0;
};

class StagedDirectory {
 public:
  // Steps 1 and 2. `job` is 1 to 64 of [0-9a-zA-Z]. AlreadyExists, FailedPrecondition: above. NotFound: PARENT.
  static absl::StatusOr<std::unique_ptr<StagedDirectory>> Begin(const std::string& destination, std::string_view job,
                                                                const StageOptions& options);
  // Gives up the lock; what was staged stays, for a job that resumes.
  ~StagedDirectory();
  StagedDirectory(const StagedDirectory&) = delete;
  StagedDirectory& operator=(const StagedDirectory&) = delete;

  // Resumed, and step 5 had happened: DST is complete, Commit finishes 6 and 7.
  bool was_committed() const { return committed_; }
  // Resumed, and there were leavings.
  bool found_leavings() const { return found_leavings_; }

  const std::string& stage() const { return stage_; }
  const std::string& data() const { return data_; }

  // Steps 4 to 7. An error before step 5 leaves DST as it was; after it, DST is the new one and the error tells what of
  // the cleaning up is left.
  absl::Status Commit();
  // Removes STAGE; DST stays as it was.
  absl::Status Abandon();

 private:
  StagedDirectory() = default;

  std::string destination_, parent_, stage_, data_;
  bool replace_ = false;
  bool committed_ = false;
  bool found_leavings_ = false;
  int lock_ = -1;
};

// Removes what is at `path`: a file, a link (not what it points to), or a directory with all that is in it. OK when
// there is nothing.
absl::Status RemoveTree(const std::string& path);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_IO_STAGED_DIRECTORY_H_
