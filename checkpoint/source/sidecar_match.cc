#include "checkpoint/source/sidecar_match.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/format_traits.h"
#include "checkpoint/hash/hash.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "status/macros.h"

namespace reshard::source {
namespace {

constexpr int64_t kHashedAtOnce = int64_t{256} << 10;

class Matcher {
 public:
  Matcher(const Sidecar& sidecar, const Catalog& catalog, const CatalogLimits& limits)
      : sidecar_(sidecar), catalog_(catalog), limits_(limits), format_(catalog.traits()) {
    for (const Catalog::File& file : catalog.files()) {
      index_.emplace(file.path, first_byte_.size());
      first_byte_.push_back(file.bytes);
    }
  }

  absl::StatusOr<HashedChunks> Match() {
    absl::Status status = CheckHeaders();
    HashedChunks hashed;
    if (status.ok()) status = Collect(&hashed);
    if (status.ok() && format_.chunks_are_archives) status = CheckComplete(hashed);
    if (!status.ok()) return status;
    return hashed;
  }

 private:
  template <typename... Text>
  static absl::Status Bad(const Text&... text) {
    return absl::DataLossError(absl::StrCat(std::string(kSidecarName), " ", text...));
  }

  absl::Status CheckHeaders() {
    if (format_.files_begin_with_header) {
      for (const Catalog::Tensor& tensor : catalog_.tensors()) {
        for (int64_t i = 0; i < tensor.num_chunks; ++i) {
          const Catalog::FileRange place = catalog_.chunk(tensor, i).place;
          int64_t& first = first_byte_[place.file];
          first = std::min(first, place.at);
        }
      }
    }
    if (sidecar_.headers.empty()) return Bad("has no hash of a file with metadata");
    absl::flat_hash_set<std::string_view> seen;
    for (const auto& [name, hash] : sidecar_.headers) {
      if (!seen.insert(name).second) return Bad("has two hashes of ", io::Shown(name));
      RETURN_IF_ERROR(CheckHeader(name, hash));
    }
    return absl::OkStatus();
  }

  absl::Status CheckHeader(const std::string& name, const hash::ContentHash& hash) {
    const auto found = index_.find(name);
    // Only files that a reader of the format looks at: the name may lead to anything.
    const bool is_header = found == index_.end() ? format_.is_header(name) : format_.files_begin_with_header;
    if (absl::Status inside = io::CheckRelativePath(name); !inside.ok() || !is_header) {
      return Bad("names ", io::Shown(name), ", which is not a file with metadata of the checkpoint");
    }
    const absl::StatusOr<std::unique_ptr<io::ReadFile>> file =
        io::ReadFile::Open(io::JoinPath(catalog_.root(), name), format_.may_be_links);
    if (absl::IsNotFound(file.status())) return Bad("names ", io::Shown(name), ", which is missing");
    if (!file.ok()) return file.status();
    // The header of a file with chunks is its first bytes, up to the first of them.
    const int64_t length = found == index_.end() ? (*file)->bytes() : first_byte_[found->second];
    if (length > limits_.metadata_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat((*file)->path(), " has a header of ", length, " bytes; at most ",
                                                       limits_.metadata_bytes, " are allowed"));
    }
    hash::ContentHasher hasher;
    std::string part;
    for (int64_t at = 0; at < length; at += kHashedAtOnce) {
      part.resize(std::min(kHashedAtOnce, length - at));
      RETURN_IF_ERROR((*file)->ReadAt(at, absl::MakeSpan(part)));
      hasher.Add(part);
    }
    if (hasher.Finish() == hash) return absl::OkStatus();
    return Bad("does not belong to ", name, ": the sidecar is stale (something else wrote over the checkpoint), or ",
               name, " is damaged");
  }

  absl::Status Collect(HashedChunks* hashed) const {
    hashed->reserve(sidecar_.chunks.size());
    for (const Sidecar::Chunk& chunk : sidecar_.chunks) {
      const auto found = index_.find(chunk.file);
      if (found == index_.end()) return Bad("names ", io::Shown(chunk.file), ", which is not a file of the checkpoint");
      const int64_t bytes = catalog_.files()[found->second].bytes;
      if (chunk.at < 0 || chunk.length < 0 || chunk.length > bytes || chunk.at > bytes - chunk.length) {
        return Bad("names bytes ", chunk.at, " + ", chunk.length, " of ", io::Shown(chunk.file), ", which has ", bytes);
      }
      if (chunk.length > 0 && !hashed->emplace(std::pair(std::string_view(chunk.file), chunk.at), &chunk).second) {
        return Bad("has two hashes of the bytes at ", chunk.at, " of ", io::Shown(chunk.file));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckComplete(const HashedChunks& hashed) const {
    const auto check = [&](std::string_view name, const Catalog::FileRange& place) {
      const std::string_view file = catalog_.files()[place.file].path;
      const auto found = hashed.find(std::pair(file, place.at));
      if (found != hashed.end() && found->second->length == place.length) return absl::OkStatus();
      return Bad("has no hash of ", io::Shown(name), ", bytes ", place.at, " + ", place.length, " of ",
                 io::Shown(file));
    };
    for (const Catalog::Tensor& tensor : catalog_.tensors()) {
      for (int64_t i = 0; i < tensor.num_chunks; ++i) {
        RETURN_IF_ERROR(check(tensor.name, catalog_.chunk(tensor, i).place));
      }
    }
    for (const Catalog::ByteItem& item : catalog_.byte_items()) {
      RETURN_IF_ERROR(check(item.name, item.place));
    }
    return absl::OkStatus();
  }

  const Sidecar& sidecar_;
  const Catalog& catalog_;
  const CatalogLimits& limits_;
  const catalog::FormatTraits& format_;
  absl::flat_hash_map<std::string_view, size_t> index_;  // of files
  std::vector<int64_t> first_byte_;                      // of tensors, by file
};

}  // namespace

absl::StatusOr<std::optional<Sidecar>> ReadSidecar(const Catalog& catalog, const CatalogLimits& limits) {
  const absl::StatusOr<std::unique_ptr<io::ReadFile>> file =
      io::ReadFile::Open(io::JoinPath(catalog.root(), kSidecarName));
  if (absl::IsNotFound(file.status())) return std::nullopt;
  if (!file.ok()) return file.status();
  ASSIGN_OR_RETURN(const std::string text, (*file)->ReadAll(limits.metadata_bytes));
  ASSIGN_OR_RETURN(Sidecar parsed, Sidecar::Parse(text));
  return std::optional<Sidecar>(std::move(parsed));
}

absl::StatusOr<HashedChunks> MatchSidecar(const Sidecar& sidecar, const Catalog& catalog, const CatalogLimits& limits) {
  return Matcher(sidecar, catalog, limits).Match();
}

}  // namespace reshard::source
