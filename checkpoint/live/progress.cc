#include "checkpoint/live/progress.h"

#include <algorithm>
#include <utility>

#include "absl/numeric/int128.h"
#include "status/no_throw.h"

namespace reshard::live {
namespace {

constexpr std::chrono::milliseconds kBetween(200);

}  // namespace

Progress::Progress(int64_t total, int64_t work, const TellProgress& tell) : total_(total), work_(work), tell_(tell) {}

absl::Status Progress::Begin() { return Tell(0); }
absl::Status Progress::End() { return Tell(total_); }

absl::Status Progress::Await(std::future<absl::Status>& work) {
  absl::Status told;
  while (tell_ && told.ok() && work.wait_for(kBetween) != std::future_status::ready) told = TellWhatIsDone();
  absl::Status done = work.get();
  if (told.ok() && done.ok() && tell_ && std::chrono::steady_clock::now() - last_ >= kBetween) told = TellWhatIsDone();
  return told.ok() ? std::move(done) : std::move(told);
}

absl::Status Progress::During(const std::function<absl::Status()>& work) {
  if (!tell_) return work();
  std::future<absl::Status> started = std::async(std::launch::async, work);
  return Await(started);
}

absl::Status Progress::TellWhatIsDone() {
  const auto done = static_cast<absl::uint128>(done_.load(std::memory_order_relaxed));
  const auto of_total =
      done * static_cast<absl::uint128>(total_) / static_cast<absl::uint128>(std::max<int64_t>(1, work_));
  return Tell(std::min(total_, static_cast<int64_t>(of_total)));
}

absl::Status Progress::Tell(int64_t done) {
  if (!tell_) return absl::OkStatus();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
  absl::Status told = status::NoThrow("telling of progress", [&] { return tell_({done, total_, seconds.count()}); });
  last_ = std::chrono::steady_clock::now();
  if (!told.ok()) stop_.request_stop();
  return told;
}

}  // namespace reshard::live
