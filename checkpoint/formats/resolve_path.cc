#include "checkpoint/formats/resolve_path.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/parts.h"
#include "checkpoint/formats/dcp/read_dcp.h"
#include "checkpoint/formats/listing/format.h"
#include "checkpoint/formats/megatron/files.h"
#include "checkpoint/io/files.h"
#include "reshard/checkpoint/pattern.h"
#include "status/view.h"

namespace reshard::formats {
namespace {

using Names = std::vector<std::string>;

bool HasName(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Of the parts of a model in files of safetensors or torch.save: "model-00002-of-00011.safetensors".
std::optional<catalog::PartName> ShardOf(std::string_view name) {
  if (!name.ends_with(".safetensors") && !name.ends_with(".bin")) return std::nullopt;
  std::optional<catalog::PartName> part = catalog::ParsePartName(name);
  return part && part->count > 1 ? part : std::nullopt;
}

// The model that a shard is a part of.
Meant ModelOf(const catalog::PartName& shard, const std::string& directory, const Names& names) {
  constexpr std::string_view kSafetensors = ".safetensors", kBin = ".bin";
  const bool safetensors = shard.series.ends_with(kSafetensors);
  const size_t number = shard.series.find("-?-of-");
  std::string index =
      absl::StrCat(shard.series.substr(0, number), status::View(safetensors ? kSafetensors : kBin), ".index.json");
  if (number != std::string::npos && HasName(names, index)) {
    return Meant{safetensors ? Meant::As::kIndex : Meant::As::kBinIndex, directory, {std::move(index)}};
  }
  if (!safetensors) return Meant{Meant::As::kDirectory, directory};
  Names files;
  for (const std::string& name : names) {
    const std::optional<catalog::PartName> part = ShardOf(name);
    if (part && part->series == shard.series) files.push_back(name);
  }
  return Meant{Meant::As::kFiles, directory, std::move(files)};
}

}  // namespace

absl::StatusOr<Meant> FindMeant(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string name = path.substr(slash == path.npos ? 0 : slash + 1);
  const std::string directory = slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const bool is_metadata = name == ".metadata" || MatchesPattern("__*.metadata", name) || name.ends_with(".distcp");
  const std::optional<catalog::PartName> shard = ShardOf(name);
  const bool is_rank =
      (MatchesPattern("model_world_size_*_rank_*.pt", name) && !name.starts_with("model_world_size_1_")) ||
      MatchesPattern("pytorch_model_fsdp_*rank*.bin", name);
  const bool is_megatron = megatron::IsFileOfRank(path);
  const bool is_listing = name == listing::kFileName;
  if (!is_metadata && !shard && !is_rank && !is_megatron && !is_listing && name != "reshard.json" &&
      !name.ends_with(".index.json")) {
    return Meant{};
  }
  // Links are how hubs keep their files.
  const absl::StatusOr<io::FileKind> kind = io::KindOf(path);
  if (!kind.ok() || (*kind != io::FileKind::kFile && *kind != io::FileKind::kLink)) return Meant{};
  if (is_megatron) {
    std::string ranks = megatron::DirectoryOfRanks(path);
    return ranks.empty() ? Meant{} : Meant{Meant::As::kDirectory, std::move(ranks)};
  }
  if (is_listing) return Meant{Meant::As::kListing, directory};
  if (name == "reshard.json") return Meant{Meant::As::kDirectory, directory};
  if (name.ends_with(".safetensors.index.json")) return Meant{Meant::As::kIndex, directory, {name}};
  if (name.ends_with(".bin.index.json")) return Meant{Meant::As::kBinIndex, directory, {name}};
  const absl::StatusOr<Names> names = io::ListDirectory(directory);
  if (!names.ok()) return Meant{};
  if (is_metadata && !dcp::MetadataFiles(*names).empty()) return Meant{Meant::As::kDcp, directory};
  if (shard) return ModelOf(*shard, directory, *names);
  if (is_rank) return Meant{Meant::As::kDirectory, directory};
  return Meant{};
}

}  // namespace reshard::formats
