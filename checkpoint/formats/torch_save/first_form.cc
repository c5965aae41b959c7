#include "checkpoint/formats/torch_save/first_form.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "checkpoint/formats/torch_save/storage_id.h"
#include "checkpoint/io/show.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::torch_save {
namespace {

using Value = pickle::Pickle::Value;
using Kind = pickle::Pickle::Kind;

constexpr std::string_view kMagic("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 12);  // LONG1 0x1950a8...
constexpr int64_t kProtocol = 1001;

class FirstFormReader {
 public:
  FirstFormReader(const io::ReadFile& file, int64_t at, int64_t length, const CatalogLimits& limits)
      : file_(file), at_(at), end_(at + length), limits_(limits) {}

  absl::StatusOr<FirstForm> Read() {
    RETURN_IF_ERROR(Next("the magic number").status());
    ASSIGN_OR_RETURN(const pickle::Pickle protocol, Next("the version"));
    if (protocol.Int(protocol.root()) != kProtocol) {
      return absl::DataLossError(absl::StrCat("torch.save's first form in another version than ", kProtocol));
    }
    RETURN_IF_ERROR(Next("the facts about the system").status());
    ASSIGN_OR_RETURN(pickle::Pickle description, Next("the description"));
    ASSIGN_OR_RETURN(const pickle::Pickle keys, Next("the list of storages"));
    RETURN_IF_ERROR(FindStorageIds(description));
    RETURN_IF_ERROR(PlaceStorages(keys));
    return FirstForm{std::move(description), std::move(storages_)};
  }

 private:
  // The next pickle, of at most `limits_.metadata_bytes`.
  absl::StatusOr<pickle::Pickle> Next(std::string_view what) {
    const int64_t left = end_ - at_;
    const int64_t most = std::min(left, limits_.metadata_bytes);
    const std::unique_ptr<io::ReadFile> part = io::ReadFile::PartOf(file_, at_, most);
    absl::StatusOr<pickle::Pickle> pickle = pickle::Pickle::ReadFirst(*part, limits_, /*persistent_ids=*/true);
    if (!pickle.ok()) {
      const bool limited = most < left && absl::IsDataLoss(pickle.status());
      return absl::Status(
          limited ? absl::StatusCode::kResourceExhausted : pickle.status().code(),
          absl::StrCat(status::View(what), " at byte ", at_, ": ", pickle.status().message(),
                       limited ? absl::StrCat(" (of the ", limits_.metadata_bytes, " bytes that are allowed)") : ""));
    }
    at_ += pickle->bytes();
    return pickle;
  }

  // What the description says of each storage that it mentions.
  absl::Status FindStorageIds(const pickle::Pickle& description) {
    for (const Value value : description.persistent_ids()) {
      const std::optional<StorageId> id = ReadStorageId(description, value);
      if (!id) continue;  // the class of a module, say
      const auto [known, fresh] = ids_.try_emplace(std::string(id->key), *id);
      if (!fresh && (known->second.elements != id->elements || known->second.element_bytes != id->element_bytes)) {
        return absl::DataLossError(
            absl::StrCat("the description contradicts itself about the storage ", io::Shown(id->key)));
      }
    }
    return absl::OkStatus();
  }

  absl::Status PlaceStorages(const pickle::Pickle& keys) {
    if (keys.kind(keys.root()) != Kind::kList) return absl::DataLossError("not a list of storages");
    absl::Status status;
    keys.ForEach(keys.root(), [&](Value key) {
      status = keys.kind(key) == Kind::kString ? PlaceStorage(keys.Text(key))
                                               : absl::DataLossError("a storage whose key is not a text");
      return status.ok();
    });
    if (!status.ok()) return status;
    for (const auto& [key, id] : ids_) {
      if (!storages_.contains(key)) {
        return absl::DataLossError(absl::StrCat("the list of storages has no ", io::Shown(key)));
      }
    }
    if (at_ == end_) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(end_ - at_, " bytes behind the last storage: if several values were saved ",
                                            "into this file, save each into its own"));
  }

  absl::Status PlaceStorage(std::string_view key) {
    const auto found = ids_.find(status::View(key));
    if (found == ids_.end()) {
      return absl::DataLossError(absl::StrCat("the description does not mention the storage ", io::Shown(key)));
    }
    const StorageId& id = found->second;
    if (!id.element_bytes) {
      return absl::UnimplementedError(absl::StrCat("the storage ", io::Shown(key), " is of the type ",
                                                   io::Shown(id.type), ", whose elements have no known size"));
    }
    int64_t elements = 0;
    const auto bytes = CheckedMul(id.elements, *id.element_bytes);
    const int64_t left = end_ - at_ - static_cast<int64_t>(sizeof elements);
    if (!bytes || left < *bytes || left < 0 || *bytes < 0) {
      return absl::DataLossError(
          absl::StrCat("the file ends in the storage ", io::Shown(key), " of ", id.elements, " elements"));
    }
    RETURN_IF_ERROR(file_.ReadAt(at_, {reinterpret_cast<char*>(&elements), sizeof elements}));
    if (elements != id.elements) {
      return absl::DataLossError(absl::StrCat("the storage ", io::Shown(key), " at byte ", at_, " has ", elements,
                                              " elements, not ", id.elements, " as the description says"));
    }
    at_ += static_cast<int64_t>(sizeof elements);
    if (!storages_.try_emplace(std::string(key), Storage{at_, *bytes}).second) {
      return absl::DataLossError(absl::StrCat("the storage ", io::Shown(key), " appears twice"));
    }
    at_ += *bytes;
    return absl::OkStatus();
  }

  const io::ReadFile& file_;
  int64_t at_;  // what comes next
  const int64_t end_;
  const CatalogLimits& limits_;
  absl::flat_hash_map<std::string, StorageId> ids_;  // views into the description
  Storages storages_;
};

}  // namespace

bool IsFirstForm(std::string_view begin) {
  constexpr size_t kBeforeNumber = 11;  // the opcode of the protocol, and perhaps that of a frame
  const size_t at = begin.substr(0, kBeforeNumber + kMagic.size()).find(kMagic);
  return begin.starts_with('\x80') && at != std::string_view::npos;
}

absl::StatusOr<FirstForm> ReadFirstForm(const io::ReadFile& file, int64_t at, int64_t length,
                                        const CatalogLimits& limits) {
  return FirstFormReader(file, at, length, limits).Read();
}

}  // namespace reshard::torch_save
