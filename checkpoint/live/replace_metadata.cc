#include "checkpoint/live/replace_metadata.h"

#include <algorithm>
#include <cerrno>
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
#include "reshard/checkpoint/catalog.h"
#include "status/macros.h"

namespace reshard::live {
namespace {

constexpr std::string_view kStreams = ".distcp";

// The rank of a name that begins with "__3_" or "__3.", which is how PyTorch and this library call files of streams and
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

}  // namespace

absl::Status ReplaceMetadata(const std::string& directory, const NewMetadata& metadata) {
  const bool is_whole = metadata.rank < 0;
  const std::string name = is_whole ? std::string(dcp::kMetadataName) : absl::StrCat("__", metadata.rank, ".metadata");
  const std::string path = io::JoinPath(directory, name);
  const std::string sidecar = io::JoinPath(directory, source::kSidecarName);

  std::set<std::string> old;
  const absl::StatusOr<Catalog> before = is_whole ? ReadCatalog(directory) : absl::NotFoundError("");
  if (before.ok() && before->format() == CheckpointFormat::kDcp) {
    for (const Catalog::File& file : before->files()) old.insert(file.path);
  }

  const std::string temporary = absl::StrCat(path, ".tmp");
  RETURN_IF_ERROR(io::WriteWholeFile(temporary, metadata.bytes));
  RETURN_IF_ERROR(io::SyncDirectory(directory));
  RETURN_IF_ERROR(io::RemoveTree(sidecar));
  RETURN_IF_ERROR(Rename(temporary, path));
  RETURN_IF_ERROR(io::SyncDirectory(directory));

  if (is_whole && !metadata.chunks.empty()) {
    const std::string text = SidecarText(name, metadata), sidecar_temporary = absl::StrCat(sidecar, ".tmp");
    RETURN_IF_ERROR(io::WriteWholeFile(sidecar_temporary, text));
    RETURN_IF_ERROR(Rename(sidecar_temporary, sidecar));
    RETURN_IF_ERROR(io::SyncDirectory(directory));
  }

  // Names that are not files of streams are left alone, even where the old checkpoint claims them.
  const std::set<std::string> now(metadata.files.begin(), metadata.files.end());
  ASSIGN_OR_RETURN(const std::vector<std::string> names, io::ListDirectory(directory));
  for (const std::string& file : names) {
    const int64_t rank = RankOf(file, '_');
    const bool is_stream = file.ends_with(kStreams) && (rank >= 0 || old.contains(file));
    const bool is_part = file.ends_with(dcp::kMetadataName) && RankOf(file, '.') >= 0;
    const bool is_ours = is_whole ? is_stream || is_part : is_stream && rank == metadata.rank;
    if (is_ours && !now.contains(file)) RETURN_IF_ERROR(io::RemoveTree(io::JoinPath(directory, file)));
  }
  return io::SyncDirectory(directory);
}

}  // namespace reshard::live
