// The files of a result while their contents are written: any number of files, of which a few are open at a time.
#ifndef RESHARD_CHECKPOINT_OUTPUT_OUTPUT_FILES_H_
#define RESHARD_CHECKPOINT_OUTPUT_OUTPUT_FILES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/io/files.h"
#include "checkpoint/output/output_plan.h"
#include "checkpoint/output/piece_sink.h"
#include "status/mutex.h"

namespace reshard::output {

class OutputFiles final : public PieceSink {
 public:
  // Creates the files that are missing in `directory`, one process at a time: a process that has no room for a file
  // removes it again, and no other may have begun to write it. `lock` is the path of a file to lock. One worker, the
  // `first`, gives each file its full length and its head, whoever created it. Errors of the system.
  static absl::StatusOr<std::unique_ptr<OutputFiles>> Open(const OutputPlan& plan, const std::string& directory,
                                                           const std::string& lock, bool first);

  std::string path(int32_t file) const;
  // From any number of threads.
  absl::Status WriteAt(int32_t file, int64_t at, std::string_view data) override;
  // All that was written to a file is on the disk. Call it when no thread writes to the file any more.
  absl::Status Sync(int32_t file);
  // The names of the files are on the disk.
  absl::Status SyncNames() const;

 private:
  OutputFiles(const OutputPlan& plan, std::string directory) : plan_(plan), directory_(std::move(directory)) {}
  absl::Status Make(int32_t file, bool first) const;
  absl::StatusOr<std::shared_ptr<io::WriteFile>> Get(int32_t file);

  const OutputPlan& plan_;
  const std::string directory_;
  status::Mutex mutex_;
  std::map<int32_t, std::shared_ptr<io::WriteFile>> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reshard::output

#endif  // RESHARD_CHECKPOINT_OUTPUT_OUTPUT_FILES_H_
