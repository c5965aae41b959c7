#include "checkpoint/convert/worker_group.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/io/error_kind.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/remove_tree.h"
#include "checkpoint/io/whole_file.h"
#include "checkpoint/tasks/run_tasks.h"
#include "status/log.h"
#include "status/macros.h"

namespace reshard::convert {
namespace {

using Clock = std::chrono::steady_clock;

constexpr absl::Duration kHeartbeat = absl::Seconds(1);

// The whole of a small file that others may be writing, or nothing.
absl::StatusOr<std::string> ReadSmall(const std::string& path) {
  constexpr int64_t kLongest = 4096;
  const absl::StatusOr<std::unique_ptr<io::ReadFile>> file = io::ReadFile::Open(path);
  if (absl::IsNotFound(file.status())) return std::string();
  if (!file.ok()) return file.status();
  absl::StatusOr<std::string> text = (*file)->ReadAll(kLongest);
  if (absl::IsDataLoss(text.status())) return std::string();  // cut off meanwhile
  return text;
}

}  // namespace

std::string WorkerGroup::Path(const char* what, int64_t worker) const {
  return io::JoinPath(stage_.stage(), absl::StrCat(what, "-", worker));
}

std::string WorkerGroup::JournalOf(int64_t worker) const { return Path("journal", worker); }

absl::StatusOr<bool> WorkerGroup::IsDone(int64_t worker) const {
  ASSIGN_OR_RETURN(const std::string text, ReadSmall(Path("done", worker)));
  return text == terms_ + "\n";
}

absl::Status WorkerGroup::MarkDone() const {
  // There may be a mark with other terms.
  RETURN_IF_ERROR(io::WriteWholeFile(Path("done", worker_), terms_ + "\n"));
  return io::SyncDirectory(stage_.stage());
}

absl::Status WorkerGroup::TakeBackDone() const { return io::RemoveTree(Path("done", worker_)); }

void WorkerGroup::Heartbeat() {
  if (alone()) return;
  if (!mutex_.TryLock()) return;
  const status::MutexLock lock(mutex_, std::adopt_lock);
  const auto now = Clock::now();
  if (heartbeats_ > 0 && now - last_heartbeat_ < absl::ToChronoNanoseconds(std::min(kHeartbeat, stall_timeout_ / 10)))
    return;
  last_heartbeat_ = now;
  const std::string path = Path("beat", worker_);
  // Closed each time, so that other hosts see it. Nothing depends on a single heartbeat.
  absl::StatusOr<std::unique_ptr<io::WriteFile>> file = io::WriteFile::Create(path);
  if (absl::IsAlreadyExists(file.status())) file = io::WriteFile::Reopen(path);
  // The time distinguishes a restarted worker from the one before.
  const std::string text = absl::StrCat(absl::ToUnixMicros(absl::Now()), " ", ++heartbeats_, "\n");
  if (file.ok()) (*file)->WriteAt(0, text).IgnoreError();
}

absl::StatusOr<std::string> WorkerGroup::Heartbeats() const {
  ASSIGN_OR_RETURN(std::vector<std::string> names, io::ListDirectory(stage_.stage()));
  std::string all;
  for (const std::string& name : names) {
    absl::StrAppend(&all, name, "\n");
    if (!absl::StartsWith(name, "beat-")) continue;
    ASSIGN_OR_RETURN(const std::string text, ReadSmall(io::JoinPath(stage_.stage(), name)));
    absl::StrAppend(&all, text);
  }
  return all;
}

absl::StatusOr<std::unique_ptr<io::FileLock>> WorkerGroup::WaitForAll(const std::function<void(int64_t)>& waiting_for,
                                                                      const std::stop_token& stop) const {
  // Polling costs the filesystem something for each of the others.
  const auto poll = absl::ToChronoNanoseconds(
      std::min({absl::Milliseconds(20) + absl::Milliseconds(2) * workers_, absl::Seconds(1), stall_timeout_ / 20}));
  const auto look = absl::ToChronoNanoseconds(std::min(absl::Seconds(30), stall_timeout_ / 10));
  std::vector<int64_t> missing;
  for (int64_t k = 0; k < workers_; ++k) {
    if (k != worker_) missing.push_back(k);
  }
  auto got_on = Clock::now(), looked = got_on;
  std::string heartbeats;
  for (size_t told = 0;;) {
    ASSIGN_OR_RETURN(const bool in_place, stage_.IsInPlace());
    if (!in_place) return nullptr;

    absl::Status asked;
    const auto is_done = [&](int64_t worker) {
      const absl::StatusOr<bool> done = IsDone(worker);
      if (!done.ok()) asked = done.status();
      return done.ok() && *done;
    };
    missing.erase(std::remove_if(missing.begin(), missing.end(), is_done), missing.end());
    if (!asked.ok()) return asked;
    if (missing.empty()) {
      absl::StatusOr<std::unique_ptr<io::FileLock>> lock = io::FileLock::Try(io::JoinPath(stage_.stage(), "finish"));
      if (!lock.ok() && !absl::IsNotFound(lock.status())) return lock.status();
      if (lock.ok() && *lock != nullptr) {
        ASSIGN_OR_RETURN(const bool locked, (*lock)->IsInPlace());
        if (!locked) return nullptr;
        return lock;
      }
    }
    if (missing.size() != told && waiting_for) waiting_for(static_cast<int64_t>(missing.size()));
    if (missing.size() != told) got_on = Clock::now();
    told = missing.size();

    if (Clock::now() - looked >= look) {
      absl::StatusOr<std::string> now = Heartbeats();
      if (!now.ok() && !absl::IsNotFound(now.status())) return now.status();
      if (now.ok() && *now != heartbeats) got_on = Clock::now();
      if (now.ok()) heartbeats = *std::move(now);
      RESHARD_LOG(kInfo, "worker ", worker_, " of ", workers_, " waits for ", missing.size(),
                  " others, the first is worker ", missing.empty() ? worker_ : missing[0]);
      looked = Clock::now();
    }
    if (stop.stop_requested()) return tasks::Stopped();
    if (Clock::now() - got_on > absl::ToChronoNanoseconds(stall_timeout_)) return NobodyGetsOn(missing);
    std::this_thread::sleep_for(poll);
  }
}

absl::Status WorkerGroup::NobodyGetsOn(const std::vector<int64_t>& missing) const {
  constexpr size_t kNamed = 10;
  std::vector<int64_t> named(missing.begin(), missing.begin() + static_cast<int64_t>(std::min(kNamed, missing.size())));
  const std::string who = missing.empty()
                              ? std::string("the worker that commits the result did not finish")
                              : absl::StrCat(missing.size() == 1 ? "worker " : "workers ", absl::StrJoin(named, ", "),
                                             missing.size() > kNamed ? ".." : "", " of ", workers_, " did not finish");
  return io::WithKind(absl::DeadlineExceededError(
                          absl::StrCat(who, ", and none has made progress for ", absl::FormatDuration(stall_timeout_),
                                       "; what was written stays in ", stage_.stage(), ": start all workers again")),
                      CheckpointError::kPeer);
}

}  // namespace reshard::convert
