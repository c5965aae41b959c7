// One run of a conversion in a stage that was begun.
#ifndef RESHARD_CHECKPOINT_JOB_RUN_H_
#define RESHARD_CHECKPOINT_JOB_RUN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/io/file_lock.h"
#include "checkpoint/io/staged_directory.h"
#include "checkpoint/job/conversion.h"
#include "checkpoint/job/hash.h"
#include "checkpoint/job/journal.h"
#include "checkpoint/job/output_files.h"
#include "checkpoint/job/piece_writer.h"
#include "checkpoint/job/worker_group.h"
#include "checkpoint/job/workers.h"

namespace reshard {

class Run {
 public:
  Run(Conversion* conversion, StagedDirectory* stage);

  // Writes this worker's share, and puts the result in its place or waits until another worker has. Errors as Convert.
  absl::Status Do();

 private:
  absl::Status WriteShare();
  absl::Status Keep(const PieceWriter& writer, Journal* journal, std::vector<char>* kept);
  absl::Status Sync(Journal* journal, OutputFiles* files);
  absl::StatusOr<bool> WasDone();
  absl::StatusOr<std::unique_ptr<FileLock>> WaitForAll();
  absl::Status Finish();
  absl::StatusOr<bool> Gather(int64_t worker);
  void Report(const ConvertProgress& progress);

  Conversion& conversion_;
  const ConvertOptions& options_;
  StagedDirectory& stage_;
  WorkerGroup group_;
  ProgressMeter meter_;
  ConvertProgress last_;             // what was reported last
  std::vector<ContentHash> hashes_;  // of the plan's pieces
};

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_JOB_RUN_H_
