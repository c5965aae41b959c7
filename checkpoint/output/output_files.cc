#include "checkpoint/output/output_files.h"

#include <iterator>
#include <set>
#include <utility>

#include "checkpoint/io/file_lock.h"
#include "status/macros.h"

namespace reshard::output {
namespace {

constexpr size_t kOpenAtOnce = 256;

}  // namespace

absl::StatusOr<std::unique_ptr<OutputFiles>> OutputFiles::Open(const OutputPlan& plan, const std::string& directory,
                                                               const std::string& lock, bool first) {
  std::unique_ptr<OutputFiles> files(new OutputFiles(plan, directory));
  ASSIGN_OR_RETURN(const std::unique_ptr<io::FileLock> alone, io::FileLock::Wait(lock));
  for (size_t i = 0; i < plan.files().size(); ++i) {
    RETURN_IF_ERROR(files->Make(static_cast<int32_t>(i), first));
  }
  return files;
}

std::string OutputFiles::path(int32_t file) const { return io::JoinPath(directory_, plan_.files()[file].name); }

absl::Status OutputFiles::Make(int32_t file, bool first) const {
  const OutputPlan::File& planned = plan_.files()[file];
  RETURN_IF_ERROR(io::MakeParents(directory_, planned.name));
  absl::StatusOr<std::unique_ptr<io::WriteFile>> made = io::WriteFile::Create(path(file), planned.bytes);
  if (!first) return absl::IsAlreadyExists(made.status()) ? absl::OkStatus() : made.status();
  if (absl::IsAlreadyExists(made.status())) made = io::WriteFile::Reopen(path(file));
  if (!made.ok()) return made.status();
  // Its full length, also where space cannot be taken ahead and nothing is written at its end.
  RETURN_IF_ERROR((*made)->Truncate(planned.bytes));
  RETURN_IF_ERROR((*made)->WriteAt(0, planned.head));
  return (*made)->Close();
}

absl::Status OutputFiles::SyncNames() const {
  std::set<std::string_view> folders;
  for (const OutputPlan::File& file : plan_.files()) {
    const size_t slash = file.name.rfind('/');
    if (slash != std::string::npos) folders.insert(std::string_view(file.name).substr(0, slash));
  }
  for (const std::string_view folder : folders) RETURN_IF_ERROR(io::SyncDirectory(io::JoinPath(directory_, folder)));
  return io::SyncDirectory(directory_);
}

absl::StatusOr<std::shared_ptr<io::WriteFile>> OutputFiles::Get(int32_t file) {
  const status::MutexLock lock(mutex_);
  const auto found = open_.find(file);
  if (found != open_.end()) return found->second;
  ASSIGN_OR_RETURN(std::unique_ptr<io::WriteFile> opened, io::WriteFile::Reopen(path(file)));
  if (open_.size() >= kOpenAtOnce) {
    // Closes the file that is needed last if tensors are written one after the other, each to all files in turn.
    auto last = open_.lower_bound(file);
    last = last == open_.begin() ? std::prev(open_.end()) : std::prev(last);
    const std::shared_ptr<io::WriteFile> closing = std::move(last->second);
    open_.erase(last);
    // The thread that is writing to it closes it; then Sync, which opens it again, tells what went wrong.
    if (closing.use_count() == 1) {
      RETURN_IF_ERROR(closing->Close());
    }
  }
  return open_.emplace(file, std::move(opened)).first->second;
}

absl::Status OutputFiles::WriteAt(int32_t file, int64_t at, std::string_view data) {
  const absl::StatusOr<std::shared_ptr<io::WriteFile>> into = Get(file);
  return into.ok() ? (*into)->WriteAt(at, data) : into.status();
}

absl::Status OutputFiles::Sync(int32_t file) {
  ASSIGN_OR_RETURN(const std::shared_ptr<io::WriteFile> written, Get(file));
  {
    const status::MutexLock lock(mutex_);
    open_.erase(file);
  }
  RETURN_IF_ERROR(written->Sync());
  return written->Close();
}

}  // namespace reshard::output
