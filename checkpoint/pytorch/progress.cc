#include "checkpoint/pytorch/progress.h"

#include <torch/library.h>

#include <chrono>

namespace reshard::pytorch {
namespace {

constexpr std::chrono::milliseconds kMoment(100);  // how soon the waiting thread sees Ctrl-C

}  // namespace

absl::Status TorchProgress::Tell(const ConvertProgress& progress) {
  const status::MutexLock lock(mutex_);
  told_ = progress;
  changed_.Announce();
  changed_.Wait(mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !told_ || !error_.empty(); });
  return error_.empty() ? absl::OkStatus() : absl::CancelledError(error_);
}

std::tuple<bool, int64_t, int64_t> TorchProgress::Next() {
  const status::MutexLock lock(mutex_);
  changed_.WaitFor(mutex_, kMoment,
                   [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_ || (told_ && error_.empty()); });
  if (!told_ || !error_.empty()) return {false, 0, 0};
  return {true, told_->done, told_->total};
}

void TorchProgress::Answer(const std::string& error) {
  const status::MutexLock lock(mutex_);
  told_.reset();
  if (error_.empty()) error_ = error;
  changed_.Announce();
}

void TorchProgress::End() {
  const status::MutexLock lock(mutex_);
  ended_ = true;
  changed_.Announce();
}

TellProgress TellOf(const std::optional<c10::intrusive_ptr<TorchProgress>>& progress) {
  if (!progress) return {};
  return [progress = *progress](const ConvertProgress& now) { return progress->Tell(now); };
}

TORCH_LIBRARY_FRAGMENT(reshard, library) {
  library.class_<TorchProgress>("Progress")
      .def(::torch::init<>())
      .def("next", &TorchProgress::Next)
      .def("answer", &TorchProgress::Answer)
      .def("end", &TorchProgress::End);
  library.def("_progress_text(int done, int total, float seconds) -> str",
              [](int64_t done, int64_t total, double seconds) {
                return ToString({done, total, seconds});
              });
}

}  // namespace reshard::pytorch
