// One run of a conversion, in a stage that has been begun.
#ifndef RESHARD_CHECKPOINT_CONVERT_RUN_H_
#define RESHARD_CHECKPOINT_CONVERT_RUN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/convert/conversion.h"
#include "checkpoint/convert/piece_writer.h"
#include "checkpoint/convert/worker_group.h"
#include "checkpoint/hash/hash.h"
#include "checkpoint/io/file_lock.h"
#include "checkpoint/io/staged_directory.h"
#include "checkpoint/output/journal.h"
#include "checkpoint/output/output_files.h"
#include "checkpoint/tasks/run_tasks.h"

namespace reshard::convert {

class Run {
 public:
  Run(Conversion* conversion, io::StagedDirectory* stage);

  // Writes this worker's share, and puts the result in its place or waits until another worker has. Errors as Convert.
  absl::Status Do();

 private:
  absl::Status WriteShare();
  absl::Status Keep(const PieceWriter& writer, const output::OutputFiles& files, output::Journal* journal,
                    std::vector<char>* kept);
  absl::Status Sync(output::Journal* journal, output::OutputFiles* files);
  absl::StatusOr<bool> WasDone();
  absl::StatusOr<std::unique_ptr<io::FileLock>> WaitForAll();
  absl::Status Finish();
  absl::StatusOr<bool> Gather(int64_t worker);
  void Report(const ConvertProgress& progress);

  Conversion& conversion_;
  const ConvertOptions& options_;
  io::StagedDirectory& stage_;
  WorkerGroup group_;
  tasks::ProgressMeter meter_;
  ConvertProgress last_;                   // what was reported last
  std::vector<hash::ContentHash> hashes_;  // of the plan's pieces
};

}  // namespace reshard::convert

#endif  // RESHARD_CHECKPOINT_CONVERT_RUN_H_
