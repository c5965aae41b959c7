// torch.classes.reshard.Progress: how far a load or save is, passed from the thread that runs it to the one that waits.
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
  // By the thread that loads or saves: passes it on, and waits until it is answered. The error of the answer,
  // Cancelled.
  absl::Status Tell(const ConvertProgress& progress);

  // By the thread that waits. How far it is, as bytes done and bytes in total, and whether that is to be answered: it
  // is not where nothing is told for a moment, or no more after End.
  std::tuple<bool, int64_t, int64_t> Next();
  // Lets the load or save go on. With an error it ends, whatever it is about to tell, with that error.
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

// Tells `progress`; nobody where there is none.
TellProgress TellOf(const std::optional<c10::intrusive_ptr<TorchProgress>>& progress);

}  // namespace reshard::pytorch

#endif  // RESHARD_CHECKPOINT_PYTORCH_PROGRESS_H_
