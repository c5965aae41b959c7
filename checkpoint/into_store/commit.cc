#include "checkpoint/into_store/commit.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/error_kind.h"
#include "checkpoint/io/files.h"
#include "checkpoint/stores/at_once.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::into_store {

absl::StatusOr<std::optional<ObjectRecord>> RightRecord(const Target& target, int64_t number,
                                                        const output::OutputPlan::File& planned, size_t pieces,
                                                        const ObjectRecord& own) {
  const absl::StatusOr<ObjectRecord> record = own.object.bytes > 0 ? own : target.job.Record(number);
  if (!record.ok() && !absl::IsNotFound(record.status())) return record.status();
  if (!record.ok() || record->object.bytes != planned.bytes || record->hashes.size() != pieces) return std::nullopt;
  const absl::StatusOr<StoredObject> there = target.store.Find(io::JoinPath(target.url, planned.name));
  if (!there.ok() && !absl::IsNotFound(there.status())) return there.status();
  if (!there.ok() || there->bytes != planned.bytes || there->version != record->object.version) return std::nullopt;
  return *record;
}

absl::StatusOr<std::vector<std::string>> FindOld(const Target& target, CheckpointFormat format,
                                                 absl::Span<const output::OutputPlan::File> kept,
                                                 const CatalogLimits& limits) {
  std::vector<std::string> old;
  const absl::StatusOr<Catalog> catalog = ReadCatalog(target.url, limits);
  if (absl::IsNotFound(catalog.status())) return old;
  std::set<std::string_view> stays;
  for (const output::OutputPlan::File& file : kept) stays.insert(file.name);
  if (absl::IsDataLoss(catalog.status())) {  // then go by names
    ASSIGN_OR_RETURN(const std::vector<Store::Entry> entries, target.store.List(target.url));
    for (const Store::Entry& entry : entries) {
      if (!entry.is_folder && StoreJob::HasContents(entry.name) && !stays.contains(entry.name))
        old.push_back(entry.name);
    }
    return old;
  }
  if (!catalog.ok()) return catalog.status();
  if (catalog->format() != format) {
    return io::FromSystem(absl::FailedPreconditionError(
        absl::StrCat(target.url, " has a checkpoint of another format (", status::View(Name(catalog->format())),
                     "), which a store cannot replace at once: remove it first, or write elsewhere")));
  }
  for (const Catalog::File& file : catalog->files()) {
    if (!stays.contains(file.path)) old.push_back(file.path);
  }
  return old;
}

absl::Status PutHeaders(const Target& target, absl::Span<const output::OutputFormat::NamedBytes> headers,
                        bool replaces) {
  const auto put = [&](const output::OutputFormat::NamedBytes& header) {
    return target.store.Put(io::JoinPath(target.url, header.first), header.second, /*create=*/false).status();
  };
  std::vector<const output::OutputFormat::NamedBytes*> inside, here;
  for (const auto& header : headers) {
    (header.first.find('/') == std::string::npos ? here : inside).push_back(&header);
  }
  RETURN_IF_ERROR(stores::AtOnce(static_cast<int64_t>(inside.size()), [&](int64_t i) { return put(*inside[i]); }));
  if (replaces) {
    RETURN_IF_ERROR(target.store.Delete(io::JoinPath(target.url, here.front()->first)));
    std::rotate(here.begin(), here.begin() + 1, here.end());
  }
  for (const auto* header : here) RETURN_IF_ERROR(put(*header));
  return absl::OkStatus();
}

}  // namespace reshard::into_store
