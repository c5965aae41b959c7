#include "checkpoint/job/worker_group.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/remove_tree.h"
#include "checkpoint/io/whole_file.h"
#include "checkpoint/job/convert_error.h"

namespace reshard {
namespace {

using Clock = std::chrono::steady_clock;

constexpr absl::Duration kBeat = absl::Seconds(1);

// The whole of a small file that others may be writing, or nothing.
absl::StatusOr<std::string> ReadSmall(const std::string& path) {
  constexpr int64_t kLongest = 4096;
  const absl::StatusOr<std::unique_ptr<ReadFile>> file = ReadFile::Open(path);
  if (absl::IsNotFound(file.status())) return std::string();
  if (!file.ok()) return file.status();
  absl::StatusOr<std::string> text = (*file)->ReadAll(kLongest);
  if (absl::IsDataLoss(text.status())) return std::string();  // cut off meanwhile
  return text;
}

}  // namespace

std::string WorkerGroup::Path(const char* what, int64_t worker) const {
  return JoinPath(stage_.stage(), absl::StrCat(what, "-", worker));
}

std::string WorkerGroup::JournalOf(int64_t worker) const { return Path("journal", worker); }

absl::StatusOr<bool> WorkerGroup::IsDone(int64_t worker) const {
  const absl::StatusOr<std::string> text = ReadSmall(Path("done", worker));
  if (!text.ok()) return text.status();
  return *text == terms_ + "\n";
}

absl::Status WorkerGroup::MarkDone() const {
  // There may be one of other terms.
  if (absl::Status put = WriteWholeFile(Path("done", worker_), terms_ + "\n"); !put.ok()) return put;
  return SyncDirectory(stage_.stage());
}

absl::Status WorkerGroup::TakeBackDone() const { return RemoveTree(Path("done", worker_)); }

void WorkerGroup::Beat() {
  if (alone()) return;
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  const auto now = Clock::now();
  if (beats_ > 0 && now - beaten_ < absl::ToChronoNanoseconds(std::min(kBeat, patience_ / 10))) return;
  beaten_ = now;
  const std::string path = Path("beat", worker_);
  // Closed each time, so that it shows on other machines. Nothing depends on one of them.
  absl::StatusOr<std::unique_ptr<WriteFile>> file = WriteFile::Create(path);
  if (absl::IsAlreadyExists(file.status())) file = WriteFile::Reopen(path);
  // The time tells a worker that was started again from the one before.
  const std::string text = absl::StrCat(absl::ToUnixMicros(absl::Now()), " ", ++beats_, "\n");
  if (file.ok()) (*file)->WriteAt(0, text).IgnoreError();
}

absl::StatusOr<std::string> WorkerGroup::Beats() const {
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(stage_.stage());
  if (!names.ok()) return names.status();
  std::string all;
  for (const std::string& name : *names) {
    absl::StrAppend(&all, name, "\n");
    if (!absl::StartsWith(name, "beat-")) continue;
    const absl::StatusOr<std::string> text = ReadSmall(JoinPath(stage_.stage(), name));
    if (!text.ok()) return text.status();
    absl::StrAppend(&all, *text);
  }
  return all;
}

absl::StatusOr<std::unique_ptr<FileLock>> WorkerGroup::WaitForAll(
    const std::function<void(int64_t)>& waiting_for) const {
  // Asking costs the filesystem something for each of the others.
  const auto poll = absl::ToChronoNanoseconds(
      std::min({absl::Milliseconds(20) + absl::Milliseconds(2) * workers_, absl::Seconds(1), patience_ / 20}));
  const auto look = absl::ToChronoNanoseconds(std::min(absl::Seconds(30), patience_ / 10));
  std::vector<int64_t> missing;
  for (int64_t k = 0; k < workers_; ++k) {
    if (k != worker_) missing.push_back(k);
  }
  auto got_on = Clock::now(), looked = got_on;
  std::string beats;
  for (size_t told = 0;;) {
    const absl::StatusOr<bool> in_place = stage_.IsInPlace();
    if (!in_place.ok()) return in_place.status();
    if (!*in_place) return nullptr;

    absl::Status asked;
    const auto is_done = [&](int64_t worker) {
      const absl::StatusOr<bool> done = IsDone(worker);
      if (!done.ok()) asked = done.status();
      return done.ok() && *done;
    };
    missing.erase(std::remove_if(missing.begin(), missing.end(), is_done), missing.end());
    if (!asked.ok()) return asked;
    if (missing.empty()) {
      absl::StatusOr<std::unique_ptr<FileLock>> lock = FileLock::Try(JoinPath(stage_.stage(), "finish"));
      if (!lock.ok() && !absl::IsNotFound(lock.status())) return lock.status();
      if (lock.ok() && *lock != nullptr) {
        const absl::StatusOr<bool> locked = (*lock)->IsInPlace();
        if (!locked.ok()) return locked.status();
        if (!*locked) return nullptr;
        return lock;
      }
    }
    if (missing.size() != told && waiting_for) waiting_for(static_cast<int64_t>(missing.size()));
    if (missing.size() != told) got_on = Clock::now();
    told = missing.size();

    if (Clock::now() - looked >= look) {
      absl::StatusOr<std::string> now = Beats();
      if (!now.ok() && !absl::IsNotFound(now.status())) return now.status();
      if (now.ok() && *now != beats) got_on = Clock::now();
      if (now.ok()) beats = *std::move(now);
      looked = Clock::now();
    }
    if (Clock::now() - got_on > absl::ToChronoNanoseconds(patience_)) return NobodyGetsOn(missing);
    std::this_thread::sleep_for(poll);
  }
}

absl::Status WorkerGroup::NobodyGetsOn(const std::vector<int64_t>& missing) const {
  constexpr size_t kNamed = 10;
  std::vector<int64_t> named(missing.begin(), missing.begin() + static_cast<int64_t>(std::min(kNamed, missing.size())));
  const std::string who =
      missing.empty() ? std::string("who puts the result in its place does not end")
                      : absl::StrCat(missing.size() == 1 ? "worker " : "workers ", absl::StrJoin(named, ", "),
                                     missing.size() > kNamed ? ".." : "", " of ", workers_, " did not come to an end");
  return WithKind(absl::DeadlineExceededError(absl::StrCat(
                      who, ", and nobody has got on for ", absl::FormatDuration(patience_),
                      "; what is written stays in ", stage_.stage(), ": start all workers again with resume")),
                  CheckpointError::kPeer);
}

}  // namespace reshard
