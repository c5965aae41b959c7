#include <algorithm>
#include <memory>
#include <set>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "checkpoint/convert/store_job.h"
#include "checkpoint/io/file_lock.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/staged_directory.h"
#include "checkpoint/stores/registry.h"
#include "checkpoint/stores/url.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/error.h"
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
  // Any job's: what comes before its name is the same for all.
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
  std::vector<StaleStaging> found;
  const absl::StatusOr<std::vector<Store::Entry>> entries = at.store->List(at.url);
  if (absl::IsNotFound(entries.status())) return found;
  if (!entries.ok()) return entries.status();
  for (const Store::Entry& entry : *entries) {
    const std::string job = convert::StoreJob::JobOf(entry.name);
    if (!entry.is_folder || job.empty()) continue;
    StaleStaging stale{job, io::JoinPath(at.url, entry.name), false};
    ASSIGN_OR_RETURN(stale.alive, convert::StoreJob::IsAlive(*at.store, stale.path));
    found.push_back(std::move(stale));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return found;
}

// What the job has written, unless it belongs to the checkpoint that is there, and its folder.
absl::Status RemoveFromStore(const std::string& destination, const StaleStaging& stale) {
  ASSIGN_OR_RETURN(const stores::Destination at, stores::DestinationAt(destination));
  const absl::StatusOr<std::vector<std::string>> names = convert::StoreJob::NamesOf(*at.store, stale.path);
  if (!names.ok() && !absl::IsNotFound(names.status())) return names.status();
  const absl::StatusOr<Catalog> there = ReadCatalog(at.url);
  if (!there.ok() && KindOf(there.status()) == CheckpointError::kSystem && !absl::IsNotFound(there.status())) {
    return there.status();
  }
  ASSIGN_OR_RETURN(const std::vector<Store::Entry> entries, at.store->List(at.url));
  // Without that, files are read as a checkpoint that only happen to be all of one.
  const bool is_whole = std::any_of(entries.begin(), entries.end(), [](const Store::Entry& entry) {
    return entry.name == ".metadata" || entry.name.ends_with(".index.json");
  });
  std::set<std::string_view> kept;
  if (there.ok()) {
    for (const Catalog::File& file : there->files()) {
      const bool of_job = names.ok() && std::find(names->begin(), names->end(), file.path) != names->end();
      if (is_whole || !of_job) kept.insert(file.path);
    }
  }
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    // What may be beside a checkpoint stays with it.
    if (kept.contains(name) || (!kept.empty() && !convert::StoreJob::HasContents(name))) continue;
    RETURN_IF_ERROR(at.store->Delete(io::JoinPath(at.url, name)));
  }
  return convert::StoreJob::Remove(*at.store, stale.path);
}

}  // namespace

absl::StatusOr<std::vector<StaleStaging>> FindStaleStaging(const std::string& destination) {
  return status::NoThrow("looking for what was left",
                         [&] { return stores::IsUrl(destination) ? FindInStore(destination) : Find(destination); });
}

absl::StatusOr<int> RemoveStaleStaging(const std::string& destination) {
  return status::NoThrow("removing what was left", [&]() -> absl::StatusOr<int> {
    ASSIGN_OR_RETURN(const std::vector<StaleStaging> stale_staging, FindStaleStaging(destination));
    int removed = 0;
    for (const StaleStaging& stale : stale_staging) {
      if (stale.alive) continue;
      if (stores::IsUrl(destination)) {
        RETURN_IF_ERROR(RemoveFromStore(destination, stale));
        ++removed;
        continue;
      }
      // A job of that name that begins anew does away with what it finds, and takes care of others that begin.
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
