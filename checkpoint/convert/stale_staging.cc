#include <algorithm>
#include <memory>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "checkpoint/into_store/occupancy.h"
#include "checkpoint/io/file_lock.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/staged_directory.h"
#include "checkpoint/stores/registry.h"
#include "checkpoint/stores/url.h"
#include "reshard/checkpoint/leavings.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard {
namespace {

constexpr std::string_view kLock = "lock-";

// Whether a worker of the job is at work.
absl::StatusOr<bool> IsAlive(const std::string& stage) {
  const absl::StatusOr<std::vector<std::string>> names = io::ListDirectory(stage);
  if (absl::IsNotFound(names.status())) return false;
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (!name.starts_with(kLock)) continue;
    ASSIGN_OR_RETURN(const bool held, io::FileLock::IsHeld(io::JoinPath(stage, name)));
    if (held) return true;
  }
  return false;
}

absl::StatusOr<std::vector<StaleStaging>> Find(const std::string& destination) {
  // For any job: what comes before its name is the same for all.
  ASSIGN_OR_RETURN(std::string begin, io::StagedDirectory::StageOf(destination, "x"));
  begin.pop_back();
  const size_t slash = begin.rfind('/');
  const std::string parent = begin.substr(0, slash + 1), prefix = begin.substr(slash + 1);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, io::ListDirectory(parent));
  std::vector<StaleStaging> found;
  for (const std::string& name : names) {
    if (!name.starts_with(prefix)) continue;
    absl::string_view job = absl::string_view(name).substr(prefix.size());
    const bool moved = absl::ConsumeSuffix(&job, ".done") || absl::ConsumeSuffix(&job, ".gone");
    if (job.empty() || !std::all_of(job.begin(), job.end(), absl::ascii_isalnum)) continue;
    StaleStaging stale{std::string(job), parent + name, false};
    if (!moved) {
      ASSIGN_OR_RETURN(stale.alive, IsAlive(stale.path));
    }
    found.push_back(std::move(stale));
  }
  return found;
}

// In a store they are in folders of the destination.
absl::StatusOr<std::vector<StaleStaging>> FindInStore(const std::string& destination) {
  ASSIGN_OR_RETURN(const stores::Destination at, stores::DestinationAt(destination));
  ASSIGN_OR_RETURN(const into_store::Occupancy place, into_store::LookAt(*at.store, at.url));
  std::vector<StaleStaging> found;
  for (const into_store::LeftJob& job : place.jobs) found.push_back({job.name, job.folder, job.is_alive});
  return found;
}

absl::StatusOr<int> RemoveFromStore(const std::string& destination) {
  ASSIGN_OR_RETURN(const stores::Destination at, stores::DestinationAt(destination));
  ASSIGN_OR_RETURN(const into_store::Occupancy place, into_store::LookAt(*at.store, at.url));
  int removed = 0;
  for (const into_store::LeftJob& job : place.jobs) {
    if (job.is_alive) continue;
    RETURN_IF_ERROR(into_store::RemoveLeft(*at.store, at.url, job));
    ++removed;
  }
  return removed;
}

}  // namespace

absl::StatusOr<std::vector<StaleStaging>> FindStaleStaging(const std::string& destination) {
  return status::NoThrow("looking for what was left",
                         [&] { return stores::IsUrl(destination) ? FindInStore(destination) : Find(destination); });
}

absl::StatusOr<int> RemoveStaleStaging(const std::string& destination) {
  return status::NoThrow("removing what was left", [&]() -> absl::StatusOr<int> {
    if (stores::IsUrl(destination)) return RemoveFromStore(destination);
    ASSIGN_OR_RETURN(const std::vector<StaleStaging> stale_staging, Find(destination));
    int removed = 0;
    for (const StaleStaging& stale : stale_staging) {
      if (stale.alive) continue;
      // A job of that name that begins anew removes what it finds, and is safe against others that begin.
      const io::StageOptions anew = {.replace = true};
      ASSIGN_OR_RETURN(const std::unique_ptr<io::StagedDirectory> stage,
                       io::StagedDirectory::Begin(destination, stale.job, anew));
      RETURN_IF_ERROR(stage->Abandon());
      ++removed;
    }
    return removed;
  });
}

}  // namespace reshard
