#include "checkpoint/job/output_files.h"

#include <iterator>
#include <utility>

#include "checkpoint/io/file_lock.h"

namespace reshard {
namespace {

constexpr size_t kOpenAtOnce = 256;

}  // namespace

absl::StatusOr<std::unique_ptr<OutputFiles>> OutputFiles::Open(const OutputPlan& plan, const std::string& directory,
                                                               const std::string& lock, bool first) {
  std::unique_ptr<OutputFiles> files(new OutputFiles(plan, directory));
  const absl::StatusOr<std::unique_ptr<FileLock>> alone = FileLock::Wait(lock);
  if (!alone.ok()) return alone.status();
  for (size_t i = 0; i < plan.files().size(); ++i) {
    if (absl::Status made = files->Make(static_cast<int32_t>(i), first); !made.ok()) return made;
  }
  return files;
}

std::string OutputFiles::path(int32_t file) const {
  return JoinPath(directory_, plan_.files()[static_cast<size_t>(file)].name);
}

absl::Status OutputFiles::Make(int32_t file, bool first) const {
  const OutputPlan::File& planned = plan_.files()[static_cast<size_t>(file)];
  absl::StatusOr<std::unique_ptr<WriteFile>> made = WriteFile::Create(path(file), planned.bytes);
  if (!first) return absl::IsAlreadyExists(made.status()) ? absl::OkStatus() : made.status();
  if (absl::IsAlreadyExists(made.status())) made = WriteFile::Reopen(path(file));
  if (!made.ok()) return made.status();
  // Its full length, also where space cannot be taken ahead and nothing is written at its end.
  if (absl::Status sized = (*made)->Truncate(planned.bytes); !sized.ok()) return sized;
  if (absl::Status headed = (*made)->WriteAt(0, planned.head); !headed.ok()) return headed;
  return (*made)->Close();
}

absl::StatusOr<std::shared_ptr<WriteFile>> OutputFiles::Get(int32_t file) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = open_.find(file);
  if (found != open_.end()) return found->second;
  absl::StatusOr<std::unique_ptr<WriteFile>> opened = WriteFile::Reopen(path(file));
  if (!opened.ok()) return opened.status();
  if (open_.size() >= kOpenAtOnce) {
    // The one that is needed last when tensors are written one after the other, each to all files in turn.
    auto last = open_.lower_bound(file);
    last = last == open_.begin() ? std::prev(open_.end()) : std::prev(last);
    const std::shared_ptr<WriteFile> closing = std::move(last->second);
    open_.erase(last);
    // Who writes to it just now closes it; then Sync, which opens it again, tells what went wrong.
    if (closing.use_count() == 1) {
      if (absl::Status closed = closing->Close(); !closed.ok()) return closed;
    }
  }
  return open_.emplace(file, *std::move(opened)).first->second;
}

absl::Status OutputFiles::WriteAt(int32_t file, int64_t at, std::string_view data) {
  const absl::StatusOr<std::shared_ptr<WriteFile>> into = Get(file);
  return into.ok() ? (*into)->WriteAt(at, data) : into.status();
}

absl::Status OutputFiles::Sync(int32_t file) {
  const absl::StatusOr<std::shared_ptr<WriteFile>> written = Get(file);
  if (!written.ok()) return written.status();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_.erase(file);
  }
  if (absl::Status synced = (*written)->Sync(); !synced.ok()) return synced;
  return (*written)->Close();
}

}  // namespace reshard
