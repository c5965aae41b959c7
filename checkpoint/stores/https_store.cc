#include "checkpoint/stores/https_store.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/https/get_range.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::stores {
namespace {

// The names to probe, as servers cannot list: the files of checkpoints first.
constexpr std::string_view kNames[] = {
    ".metadata",
    "reshard.listing.json",
    "_METADATA",
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
    "common.pt",
    "meta.pt",
    "metadata.json",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
};

StoredObject ObjectOf(const https::Range& range) { return {range.total, range.validator}; }

}  // namespace

absl::StatusOr<StoredObject> HttpsStore::Find(const std::string& url) {
  char byte = 0;
  return FindAndRead(url, {&byte, 1});
}

absl::StatusOr<StoredObject> HttpsStore::FindAndRead(const std::string& url, absl::Span<char> first) {
  ASSIGN_OR_RETURN(const https::Range range, https::GetRange(url, 0, first));
  return ObjectOf(range);
}

absl::Status HttpsStore::Read(const std::string& url, const StoredObject& object, int64_t at, absl::Span<char> out) {
  const absl::StatusOr<https::Range> range = https::GetRange(url, at, out);
  const bool gone = absl::IsNotFound(range.status());
  if (gone || (range.ok() && (range->total != object.bytes || range->validator != object.version))) {
    return absl::FailedPreconditionError(absl::StrCat(url, gone ? " is gone" : " has changed"));
  }
  return range.status();
}

absl::StatusOr<std::vector<Store::Entry>> HttpsStore::List(const std::string& url) {
  {
    const status::MutexLock lock(mutex_);
    if (const auto found = known_.find(url); found != known_.end()) return found->second;
  }
  std::vector<Entry> entries;
  absl::Status denied;
  for (const std::string_view name : kNames) {
    char byte = 0;
    const absl::StatusOr<https::Range> there =
        https::GetRange(absl::StrCat(url, "/", status::View(name)), 0, {&byte, 1});
    if (there.ok()) {
      entries.push_back({std::string(name), false, ObjectOf(*there)});
    } else if (absl::IsPermissionDenied(there.status())) {
      denied = there.status();
    } else if (!absl::IsNotFound(there.status())) {
      return there.status();
    }
  }
  if (entries.empty() && !denied.ok()) return denied;
  if (entries.empty()) {
    return absl::NotFoundError(absl::StrCat(url, ": it has none of the files of a checkpoint"));
  }
  const status::MutexLock lock(mutex_);
  return known_.emplace(url, std::move(entries)).first->second;
}

}  // namespace reshard::stores
