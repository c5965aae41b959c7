// torch.classes.reshard.Progress: passes the progress of a load or save from the thread that runs it to the thread that
// waits for it.
#ifndef RESHARD_CHECKPOINT_PYTORCH_PROGRESS_H_
#define RESHARD_CHECKPOINT_PYTORCH_PROGRESS_H_

#include <torch/custom_class.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "absl/status/status.h"
#include "reshard/checkpoint/progress.h"
#include "status/mutex.h"

namespace reshard::pytorch {

class TorchProgress : public ::torch::CustomClassHolder {
 public:
  // For the thread that loads or saves. Passes `progress` to Next, and blocks until Answer. Cancelled, with the text of
  // Answer's error, if there is one.
  absl::Status Tell(const ConvertProgress& progress);

  // For the thread that waits. Waits at most 100 ms for Tell. Returns whether there is progress that must be answered,
  // the bytes done, and the total bytes. False: Tell was not called in that time, or End was.
  std::tuple<bool, int64_t, int64_t> Next();
  // Lets the load or save continue. A non-empty `error` ends it with that error, whatever it is about to tell.
  void Answer(const std::string& error);
  // The load or save is over.
  void End();

 private:
  status::Mutex mutex_;
  status::Changes changed_;
  std::optional<ConvertProgress> told_ ABSL_GUARDED_BY(mutex_);  // until it is answered
  std::string error_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// A callback that tells `progress`; empty if there is none.
TellProgress TellOf(const std::optional<c10::intrusive_ptr<TorchProgress>>& progress);

}  // namespace reshard::pytorch

#endif  // RESHARD_CHECKPOINT_PYTORCH_PROGRESS_H_
