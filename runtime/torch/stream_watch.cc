#include "runtime/torch/stream_watch.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace reshard {
namespace {

// How soon a record that disagrees, or a rank that is late, is noticed while nobody calls.
constexpr std::chrono::milliseconds kEvery(5);

// CUDA_ERROR_DEINITIALIZED: the process is about to end, and the driver has.
constexpr CudaResult kCudaGone = 4;

}  // namespace

StreamWatch::StreamWatch(CudaDevice* device, absl::Duration timeout, Failed failed)
    : device_(*device), timeout_(timeout), failed_(std::move(failed)), thread_([this] { Serve(); }) {}

StreamWatch::~StreamWatch() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  const CudaDevice::Current current(device_);
  for (const Watched& watched : watched_) device_.api().EventDestroy(watched.event);
  for (CudaEvent event : free_events_) device_.api().EventDestroy(event);
}

absl::Status StreamWatch::Add(CudaStream stream, Operation operation) {
  const CudaDevice::Current current(device_);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (over_) return absl::OkStatus();
  CudaEvent event = nullptr;
  if (free_events_.empty()) {
    const absl::Status made =
        CudaStatus(device_.api(), device_.api().EventCreate(&event, kCudaEventDisableTiming), "making an event");
    if (!made.ok()) return made;
  } else {
    event = free_events_.back();
    free_events_.pop_back();
  }
  const absl::Status recorded =
      CudaStatus(device_.api(), device_.api().EventRecord(event, stream), "recording an event");
  if (!recorded.ok()) {
    free_events_.push_back(event);
    return recorded;
  }
  if (watched_.empty()) since_ = absl::Now();
  watched_.push_back({std::move(operation), event});
  if (watched_.size() == 1) changed_.notify_all();
  return absl::OkStatus();
}

bool StreamWatch::FindsFailure() {
  const CudaDevice::Current current(device_);
  std::unique_lock<std::mutex> lock(mutex_);
  LookLocked();
  if (error_.ok()) return false;
  changed_.wait(lock, [this] { return over_; });
  return true;
}

void StreamWatch::LookLocked() {
  if (over_ || !error_.ok()) return;
  while (!watched_.empty()) {
    Watched& first = watched_.front();
    const CudaResult result = device_.api().EventQuery(first.event);
    if (result == kCudaNotReady) {
      if (absl::Now() - since_ > timeout_) {
        error_ = absl::DeadlineExceededError(absl::StrCat(first.operation.name, " was not done on the device within ",
                                                          absl::ToInt64Milliseconds(timeout_), " ms"));
        changed_.notify_all();
      }
      return;
    }
    if (result == kCudaGone) {
      over_ = true;
      changed_.notify_all();
      return;
    }
    error_ = CudaStatus(device_.api(), result, first.operation.name);
    if (error_.ok() && first.operation.done) error_ = first.operation.done();
    if (!error_.ok()) {
      changed_.notify_all();
      return;
    }
    free_events_.push_back(first.event);
    watched_.pop_front();
    since_ = absl::Now();
    if (watched_.empty()) changed_.notify_all();
  }
}

void StreamWatch::Post(std::function<void()> f) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    posted_.push_back(std::move(f));
  }
  changed_.notify_all();
}

void StreamWatch::WaitUntilDone() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return watched_.empty() || over_; });
}

void StreamWatch::Serve() {
  const CudaDevice::Current current(device_);
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    if (!posted_.empty()) {
      const std::vector<std::function<void()>> functions = std::exchange(posted_, {});
      lock.unlock();
      for (const std::function<void()>& f : functions) f();
      lock.lock();
      continue;
    }
    LookLocked();
    if (!error_.ok() && !over_) {
      const Operation operation = watched_.front().operation;
      const absl::Status error = error_;
      lock.unlock();
      failed_(operation, error);
      lock.lock();
      over_ = true;
      changed_.notify_all();
      continue;
    }
    const auto news = [this] { return stop_ || !posted_.empty() || (!error_.ok() && !over_); };
    if (watched_.empty() || over_) {
      changed_.wait(lock, [&] { return news() || (!watched_.empty() && !over_); });
    } else {
      changed_.wait_for(lock, kEvery, news);
    }
  }
}

}  // namespace reshard
