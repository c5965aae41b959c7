// One object of a result on its way to a store.
#ifndef RESHARD_CHECKPOINT_OUTPUT_OBJECT_SINK_H_
#define RESHARD_CHECKPOINT_OUTPUT_OBJECT_SINK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/output/output_plan.h"
#include "checkpoint/output/piece_sink.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/store.h"
#include "status/mutex.h"

namespace reshard::output {

// Turns the pieces of one file, which come in nearly ascending order, into one run of bytes: what comes early waits in
// memory for what is before it. What lies between pieces is zeros. For any number of threads.
//
// Example: pieces at [64, 100) and [128, 160) of a file of 160 bytes, whose head has 64.
//   Begin sends the head; WriteAt(70, ..30 bytes) waits; WriteAt(64, ..6 bytes) sends 64 bytes, up to 128.
class ObjectSink final : public PieceSink {
 public:
  // `upload` is of an object of as many bytes as the file. `places` are those of all its pieces; all of them name
  // `file`.
  static absl::StatusOr<std::unique_ptr<ObjectSink>> Begin(const OutputPlan::File& planned, int32_t file,
                                                           std::vector<Catalog::FileRange> places,
                                                           std::unique_ptr<ObjectUpload> upload);
  // Takes every byte once. Errors of the upload.
  absl::Status WriteAt(int32_t file, int64_t at, std::string_view data) override;
  // Internal: bytes are missing. Errors of the upload.
  absl::StatusOr<StoredObject> Finish();

 private:
  ObjectSink(int64_t bytes, int32_t file, std::unique_ptr<ObjectUpload> upload)
      : bytes_(bytes), file_(file), upload_(std::move(upload)) {}
  void MarkThere(int64_t begin, int64_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Send(int64_t least) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t bytes_;
  const int32_t file_;
  const std::unique_ptr<ObjectUpload> upload_;
  status::Mutex mutex_;  // also while bytes are sent: that keeps threads from reading more than can be sent
  int64_t sent_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string window_ ABSL_GUARDED_BY(mutex_);  // bytes from sent_ on
  // Disjoint, not adjacent [begin, end) from sent_ on that are in the window, or zeros.
  std::map<int64_t, int64_t> there_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reshard::output

#endif  // RESHARD_CHECKPOINT_OUTPUT_OBJECT_SINK_H_
