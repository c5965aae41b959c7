#include "checkpoint/into_store/occupancy.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/format_traits.h"
#include "checkpoint/into_store/store_job.h"
#include "checkpoint/io/error_kind.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "checkpoint/stores/at_once.h"
#include "reshard/checkpoint/catalog.h"
#include "status/macros.h"

namespace reshard::into_store {

absl::StatusOr<Occupancy> LookAt(Store& store, const std::string& url, const std::string& own) {
  Occupancy there;
  const absl::StatusOr<std::vector<Store::Entry>> entries = store.List(url);
  if (absl::IsNotFound(entries.status())) return there;
  if (!entries.ok()) return entries.status();
  std::set<std::string> known;
  for (const Store::Entry& entry : *entries) {
    const std::string name = entry.is_folder ? StoreJob::JobOf(entry.name) : "";
    if (name.empty()) continue;
    LeftJob job{name, io::JoinPath(url, entry.name), {}, false};
    absl::StatusOr<std::vector<std::string>> names = StoreJob::NamesOf(store, job.folder);
    if (!names.ok() && !absl::IsNotFound(names.status())) return names.status();
    if (names.ok()) job.names = *std::move(names);
    // Of a tree "a/b" only "a" is visible here.
    for (const std::string& written : job.names) known.insert(written.substr(0, written.find('/')));
    if (job.folder != own) {
      ASSIGN_OR_RETURN(job.is_alive, StoreJob::IsAlive(store, job.folder));
    }
    there.jobs.push_back(std::move(job));
  }
  for (const Store::Entry& entry : *entries) {
    const bool is_job = entry.is_folder && !StoreJob::JobOf(entry.name).empty();
    if (!is_job && !known.contains(entry.name)) there.others.push_back(entry.name);
  }
  std::sort(there.jobs.begin(), there.jobs.end(), [](const auto& a, const auto& b) { return a.folder < b.folder; });
  return there;
}

absl::Status CheckFree(const Occupancy& there, const std::string& url, bool overwrite, const std::string& own) {
  for (const LeftJob& job : there.jobs) {
    if (job.folder == own || !job.is_alive) continue;
    return io::FromSystem(
        absl::FailedPreconditionError(absl::StrCat("another job is writing to ", url, " (", job.folder, ")")));
  }
  if (there.others.empty() || overwrite) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(url, " already exists: there is ", io::Shown(there.others.front()),
                                               "; --overwrite (in Python overwrite=True) replaces a checkpoint"));
}

absl::Status RemoveLeft(Store& store, const std::string& url, const LeftJob& job) {
  const absl::StatusOr<Catalog> there = ReadCatalog(url);
  if (!there.ok() && KindOf(there.status()) == CheckpointError::kSystem && !absl::IsNotFound(there.status())) {
    return there.status();
  }
  ASSIGN_OR_RETURN(const std::vector<Store::Entry> entries, store.List(url));
  ASSIGN_OR_RETURN(const std::vector<std::string> old, StoreJob::OldOf(store, job.folder));
  // Without such a file, what is there may be read as a checkpoint only because it happens to be all of one.
  const auto completes = there.ok() ? there->traits().completes : nullptr;
  const bool is_whole =
      completes != nullptr &&
      std::any_of(entries.begin(), entries.end(), [&](const Store::Entry& entry) { return completes(entry.name); });
  std::set<std::string_view> kept;
  if (there.ok()) {
    for (const Catalog::File& file : there->files()) {
      const bool of_job = std::find(job.names.begin(), job.names.end(), file.path) != job.names.end();
      if (is_whole || !of_job) kept.insert(file.path);
    }
  }
  std::vector<std::string> gone;
  for (const std::string& name : job.names) {
    // What may be beside a checkpoint stays with it.
    if (!kept.contains(name) && (kept.empty() || StoreJob::HasContents(name))) gone.push_back(name);
  }
  for (const std::string& name : old) {
    // Nothing is known to be replaced unless the new checkpoint can be read.
    if (there.ok() && !kept.contains(name)) gone.push_back(name);
  }
  RETURN_IF_ERROR(DeleteAll(store, url, gone));
  return StoreJob::Remove(store, job.folder);
}

absl::Status DeleteAll(Store& store, const std::string& url, absl::Span<const std::string> names) {
  return stores::AtOnce(static_cast<int64_t>(names.size()),
                        [&](int64_t i) { return store.Delete(io::JoinPath(url, names[static_cast<size_t>(i)])); });
}

}  // namespace reshard::into_store
