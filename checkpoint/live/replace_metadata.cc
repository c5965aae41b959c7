#include "checkpoint/live/replace_metadata.h"

#include <cerrno>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/formats/dcp/format.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/remove_tree.h"
#include "checkpoint/io/system.h"
#include "checkpoint/io/whole_file.h"
#include "checkpoint/stores/registry.h"
#include "checkpoint/stores/url.h"
#include "reshard/checkpoint/catalog.h"
#include "status/macros.h"

namespace reshard::live {
namespace {

constexpr std::string_view kStreams = ".distcp";

// The rank of a name that begins with "__3_" or "__3.", which is how PyTorch and this library name files of streams and
// the metadata of one rank; -1 for any other name.
int64_t RankOf(std::string_view name, char after) {
  if (!name.starts_with("__")) return -1;
  name.remove_prefix(2);
  int64_t rank = 0;
  size_t digits = 0;
  while (digits < name.size() && digits < 9 && absl::ascii_isdigit(static_cast<unsigned char>(name[digits]))) {
    rank = 10 * rank + (name[digits++] - '0');
  }
  return digits > 0 && digits < name.size() && name[digits] == after ? rank : -1;
}

absl::Status Rename(const std::string& from, const std::string& to) {
  const int moved = io::Uninterrupted([&] { return io::CurrentSystem().Rename(from.c_str(), to.c_str()); });
  return moved == 0 ? absl::OkStatus() : io::SystemError(errno, "rename to", to);
}

std::string SidecarText(const std::string& metadata_name, const NewMetadata& metadata) {
  source::Sidecar sidecar;
  sidecar.headers.emplace_back(metadata_name, hash::ContentHash::Of(metadata.bytes));
  sidecar.job = sidecar.headers[0].second.ToText();
  sidecar.chunks = metadata.chunks;
  return sidecar.ToJson();
}

// What the steps need of a directory or of a store.
class Folder {
 public:
  virtual ~Folder() = default;
  // Prepares the file of that name, which Show makes visible.
  virtual absl::Status Stage(const std::string& name, const std::string& bytes) = 0;
  // The staged file appears at one instant, and lasts. All earlier removals last, too.
  virtual absl::Status Show() = 0;
  // OK where there is nothing.
  virtual absl::Status Remove(const std::string& name) = 0;
  virtual absl::StatusOr<std::vector<std::string>> Names() = 0;
  // All removals last.
  virtual absl::Status Sync() = 0;
};

class Directory final : public Folder {
 public:
  explicit Directory(const std::string& path) : path_(path) {}
  absl::Status Stage(const std::string& name, const std::string& bytes) override {
    staged_ = io::JoinPath(path_, name);
    RETURN_IF_ERROR(io::WriteWholeFile(absl::StrCat(staged_, ".tmp"), bytes));
    return io::SyncDirectory(path_);
  }
  absl::Status Show() override {
    RETURN_IF_ERROR(Rename(absl::StrCat(staged_, ".tmp"), staged_));
    return io::SyncDirectory(path_);
  }
  absl::Status Remove(const std::string& name) override { return io::RemoveTree(io::JoinPath(path_, name)); }
  absl::StatusOr<std::vector<std::string>> Names() override { return io::ListDirectory(path_); }
  absl::Status Sync() override { return io::SyncDirectory(path_); }

 private:
  const std::string& path_;
  std::string staged_;
};

class StoreFolder final : public Folder {
 public:
  explicit StoreFolder(stores::Destination at) : at_(std::move(at)) {}
  absl::Status Stage(const std::string& name, const std::string& bytes) override {
    staged_ = {io::JoinPath(at_.url, name), bytes};
    return absl::OkStatus();
  }
  absl::Status Show() override { return at_.store->Put(staged_.first, staged_.second, /*create=*/false).status(); }
  absl::Status Remove(const std::string& name) override { return at_.store->Delete(io::JoinPath(at_.url, name)); }
  absl::StatusOr<std::vector<std::string>> Names() override {
    ASSIGN_OR_RETURN(const std::vector<Store::Entry> entries, at_.store->List(at_.url));
    std::vector<std::string> names;
    for (const Store::Entry& entry : entries) {
      if (!entry.is_folder) names.push_back(entry.name);
    }
    return names;
  }
  absl::Status Sync() override { return absl::OkStatus(); }

 private:
  const stores::Destination at_;
  std::pair<std::string, std::string> staged_;  // URL and bytes
};

absl::StatusOr<std::unique_ptr<Folder>> FolderAt(const std::string& path) {
  if (!stores::IsUrl(path)) return std::make_unique<Directory>(path);
  ASSIGN_OR_RETURN(stores::Destination at, stores::DestinationAt(path));
  return std::make_unique<StoreFolder>(std::move(at));
}

}  // namespace

absl::Status ReplaceMetadata(const std::string& directory, const NewMetadata& metadata) {
  const bool is_whole = metadata.rank < 0;
  const std::string name = is_whole ? std::string(dcp::kMetadataName) : absl::StrCat("__", metadata.rank, ".metadata");
  const std::string sidecar(source::kSidecarName);
  ASSIGN_OR_RETURN(const std::unique_ptr<Folder> folder, FolderAt(directory));

  std::set<std::string> old;
  const absl::StatusOr<Catalog> before = is_whole ? ReadCatalog(directory) : absl::NotFoundError("");
  if (before.ok() && before->format() == CheckpointFormat::kDcp) {
    for (const Catalog::File& file : before->files()) old.insert(file.path);
  }

  RETURN_IF_ERROR(folder->Stage(name, metadata.bytes));
  RETURN_IF_ERROR(folder->Remove(sidecar));
  RETURN_IF_ERROR(folder->Show());
  if (is_whole && !metadata.chunks.empty()) {
    RETURN_IF_ERROR(folder->Stage(sidecar, SidecarText(name, metadata)));
    RETURN_IF_ERROR(folder->Show());
  }

  // Names that are not files of streams are left alone, even where the old checkpoint claims them.
  const std::set<std::string> now(metadata.files.begin(), metadata.files.end());
  ASSIGN_OR_RETURN(const std::vector<std::string> names, folder->Names());
  for (const std::string& file : names) {
    const int64_t rank = RankOf(file, '_');
    const bool is_stream = file.ends_with(kStreams) && (rank >= 0 || old.contains(file));
    const bool is_part = file.ends_with(dcp::kMetadataName) && RankOf(file, '.') >= 0;
    const bool is_ours = is_whole ? is_stream || is_part : is_stream && rank == metadata.rank;
    if (is_ours && !now.contains(file)) RETURN_IF_ERROR(folder->Remove(file));
  }
  return folder->Sync();
}

}  // namespace reshard::live
