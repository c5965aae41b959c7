#include "runtime/nccl/watchdog.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "status/log.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard::nccl {
namespace {

// How often the device is looked at while something is under way.
constexpr absl::Duration kLook = absl::Microseconds(200);

// How often the store is looked at, and how long ranks have to answer: what the timeout allows, within bounds that keep
// a large world from flooding the store.
absl::Duration StorePeriod(absl::Duration timeout) {
  return std::clamp(timeout / 8, absl::Milliseconds(10), absl::Seconds(2));
}

absl::Duration AnswerTime(absl::Duration timeout) {
  return std::clamp(timeout / 2, absl::Milliseconds(50), absl::Seconds(5));
}

}  // namespace

Watchdog::Watchdog(const cuda::CudaDevice& device, WatchdogOptions options)
    : device_(device), options_(std::move(options)), verdict_(options_.store, Key("failed"), options_.rank) {
  thread_ = std::thread([this] { Serve(); });
}

Watchdog::~Watchdog() {
  WaitForAll().IgnoreError();
  {
    const status::MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.Announce();
  thread_.join();
  const cuda::CudaDevice::Current current(device_);
  for (cuda::CudaEvent event : free_events_) device_.api().EventDestroy(event);
  for (const Operation& operation : dropped_) device_.api().EventDestroy(operation.event);
}

std::string Watchdog::Key(absl::string_view name) { return absl::StrCat("reshard/nccl/", name); }

absl::Status Watchdog::Operate(absl::string_view name, int64_t bytes, absl::FunctionRef<cuda::CudaStream()> stream,
                               absl::FunctionRef<absl::Status(cuda::CudaStream, bool)> enqueue,
                               std::function<absl::Status()> check) {
  absl::Status status = Begin(name, bytes);
  if (!status.ok()) return status;
  bool captured = false;
  status = status::NoThrow("enqueueing", [&]() -> absl::Status {
    const cuda::CudaStream its_stream = stream();
    ASSIGN_OR_RETURN(const bool capturing, device_.IsCapturing(its_stream));
    captured = capturing;
    if (!captured) RETURN_IF_ERROR(FollowOn(its_stream));
    const absl::Status enqueued = enqueue(its_stream, captured);
    // What is only recorded into a graph happens when the graph is launched, which nothing here sees.
    return enqueued.ok() && !captured ? Enqueued(its_stream, std::move(check)) : enqueued;
  });
  if (status.ok() && !captured) return status;
  Left(status);
  // An error while recording leaves nothing behind but a graph that cannot be used.
  return captured ? status : Fail(status);
}

absl::Status Watchdog::Begin(absl::string_view name, int64_t bytes) {
  const status::MutexLock lock(mutex_);
  if (!failure_.ok()) return failure_;
  ++begun_;
  current_ = std::string(name);
  current_number_ = recent_.Begin(name, bytes);
  return absl::OkStatus();
}

absl::Status Watchdog::FollowOn(cuda::CudaStream stream) {
  const status::MutexLock lock(mutex_);
  if (under_way_.empty() || under_way_.back().stream == stream) return absl::OkStatus();
  const cuda::CudaDevice::Current current(device_);
  return cuda::CudaStatus(device_.api(), device_.api().StreamWaitEvent(stream, under_way_.back().event, 0),
                          "waiting for the operation before");
}

absl::Status Watchdog::Enqueued(cuda::CudaStream stream, std::function<absl::Status()> check) {
  const status::MutexLock lock(mutex_);
  if (!failure_.ok()) return failure_;
  const cuda::CudaDevice::Current current(device_);
  const cuda::CudaApi& api = device_.api();
  cuda::CudaEvent event = nullptr;
  if (free_events_.empty()) {
    RETURN_IF_ERROR(cuda::CudaStatus(api, api.EventCreate(&event, cuda::kCudaEventDisableTiming), "making an event"));
  } else {
    event = free_events_.back();
    free_events_.pop_back();
  }
  const absl::Status recorded = cuda::CudaStatus(api, api.EventRecord(event, stream), "recording an event");
  if (!recorded.ok()) {
    free_events_.push_back(event);
    return recorded;
  }
  const absl::Time now = absl::Now();
  under_way_.push_back(
      {current_number_, begun_, current_, stream, event, now, now + options_.timeout, std::move(check)});
  changed_.Announce();
  return absl::OkStatus();
}

void Watchdog::Left(const absl::Status& status) {
  const status::MutexLock lock(mutex_);
  recent_.End(current_number_, status);
}

absl::Status Watchdog::failure() const {
  const status::MutexLock lock(mutex_);
  return failure_;
}

absl::Status Watchdog::WaitForAll() {
  const status::MutexLock lock(mutex_);
  changed_.Wait(mutex_,
                [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return under_way_.empty() || !failure_.ok(); });
  return failure_;
}

absl::Status Watchdog::Fail(const absl::Status& found) {
  // What another rank told came first: this error may follow from it.
  const absl::StatusOr<std::optional<absl::Status>> failed = verdict_.Read();
  const bool told = failed.ok() && failed->has_value();
  const absl::Status error = told ? **failed : found;
  {
    const status::MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    failure_ = error;
    // Kept: the device may still write to what their checks read.
    dropped_ = std::move(under_way_);
    under_way_.clear();
    for (const Operation& operation : dropped_) recent_.End(operation.number, error);
  }
  changed_.Announce();
  if (!told) verdict_.Broadcast(error);
  options_.abort();
  return error;
}

void Watchdog::Serve() {
  // Looking at events must not disturb a thread that captures a graph.
  const cuda::CudaDevice::BesideCapture beside(device_);
  for (;;) {
    const absl::Duration pause = Look();
    const status::MutexLock lock(mutex_);
    if (stop_) return;
    const size_t known = under_way_.size();
    changed_.WaitFor(mutex_, absl::ToChronoNanoseconds(pause), [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stop_ || (known == 0 && !under_way_.empty());
    });
    if (stop_) return;
  }
}

absl::Duration Watchdog::Look() {
  const absl::Time now = absl::Now();
  const absl::Status outcome = status::NoThrow("watching operations", [&] {
    for (bool ended = true; ended;) {
      RETURN_IF_ERROR(LookAtFirst(&ended));
    }
    return LookAtStore(now);
  });
  if (!outcome.ok()) Fail(outcome).IgnoreError();
  const status::MutexLock lock(mutex_);
  return under_way_.empty() ? StorePeriod(options_.timeout) : kLook;
}

// The oldest operation under way: it has ended, or failed, or is late, or goes on.
absl::Status Watchdog::LookAtFirst(bool* ended) {
  *ended = false;
  Operation first;
  {
    const status::MutexLock lock(mutex_);
    if (under_way_.empty() || !failure_.ok()) return absl::OkStatus();
    first = under_way_.front();
  }
  const absl::Time now = absl::Now();
  cuda::CudaResult happened = cuda::kCudaNotReady;
  {
    const cuda::CudaDevice::Current current(device_);
    happened = device_.api().EventQuery(first.event);
  }
  if (happened == cuda::kCudaSuccess) {
    const absl::Status checked = first.check == nullptr ? absl::OkStatus() : first.check();
    {
      const status::MutexLock lock(mutex_);
      if (!failure_.ok()) return absl::OkStatus();
      if (checked.ok()) {
        free_events_.push_back(first.event);
        under_way_.pop_front();
        recent_.End(first.number, checked);
      }
    }
    changed_.Announce();
    *ended = checked.ok();
    return checked;
  }
  if (happened != cuda::kCudaNotReady) return cuda::CudaStatus(device_.api(), happened, first.name);
  if (now - looked_at_nccl_ >= absl::Milliseconds(5)) {
    looked_at_nccl_ = now;
    RETURN_IF_ERROR(options_.async_error());
  }
  if (status::Logs(status::LogLevel::kInfo) &&
      now - std::max(first.begun, logged_wait_) >= absl::Seconds(status::kLoggedWaitSeconds)) {
    logged_wait_ = now;
    RESHARD_LOG(kInfo, "rank ", options_.rank, " of ", options_.size, " has waited ",
                absl::FormatDuration(absl::Floor(now - first.begun, absl::Seconds(1))), " for operation ",
                first.sequence, ", ", first.name, ", to end on the device");
  }
  return now < first.deadline ? absl::OkStatus() : CulpritErrorFor(first);
}

// What other ranks left there: a failure, or a question.
absl::Status Watchdog::LookAtStore(absl::Time now) {
  if (now - looked_at_store_ < StorePeriod(options_.timeout) || !failure().ok()) return absl::OkStatus();
  looked_at_store_ = now;
  const absl::StatusOr<std::optional<absl::Status>> failed = verdict_.Read();
  // A store that cannot be reached may have gone with the rank that kept it; the deadlines still hold.
  if (!failed.ok()) return absl::OkStatus();
  if (failed->has_value()) return **failed;
  if (!answered_) {
    const absl::StatusOr<std::optional<std::string>> asked = options_.store->TryGet(Key("asked"));
    if (asked.ok() && asked->has_value()) Answer();
  }
  return absl::OkStatus();
}

void Watchdog::Answer() {
  int64_t begun = 0;
  {
    const status::MutexLock lock(mutex_);
    begun = begun_;
  }
  answered_ = true;
  options_.store->Set(Key(absl::StrCat("begun/", options_.rank)), absl::StrCat(begun)).IgnoreError();
}

absl::Status Watchdog::CulpritErrorFor(const Operation& late) {
  const absl::StatusOr<std::optional<absl::Status>> failed = verdict_.Read();
  if (failed.ok() && failed->has_value()) return **failed;
  options_.store->Set(Key("asked"), absl::StrCat(options_.rank)).IgnoreError();
  if (!answered_) Answer();
  std::vector<execute::PeerAnswer> answers(static_cast<size_t>(options_.size));
  const absl::Time until = absl::Now() + AnswerTime(options_.timeout);
  const absl::Duration pause = StorePeriod(options_.timeout) / 2;
  for (bool all = false; !all && absl::Now() < until;) {
    all = true;
    for (int64_t r = 0; r < options_.size; ++r) {
      execute::PeerAnswer& answer = answers[r];
      if (answer.kind == execute::PeerAnswer::Kind::kState) continue;
      const absl::StatusOr<std::optional<std::string>> text = options_.store->TryGet(Key(absl::StrCat("begun/", r)));
      if (text.ok() && text->has_value() && absl::SimpleAtoi(**text, &answer.state.operations)) {
        answer.kind = execute::PeerAnswer::Kind::kState;
        answer.state.phase = execute::PeerState::Phase::kRunning;
      }
      all &= answer.kind == execute::PeerAnswer::Kind::kState;
    }
    if (!all) absl::SleepFor(pause);
  }
  // Another rank may have come to a verdict meanwhile.
  const absl::StatusOr<std::optional<absl::Status>> verdict = verdict_.Read();
  if (verdict.ok() && verdict->has_value()) return **verdict;
  return execute::CulpritError({options_.rank, late.sequence, late.name, options_.timeout, ""}, answers);
}

}  // namespace reshard::nccl
