#include "checkpoint/formats/torch_save/read.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/parts.h"
#include "checkpoint/formats/safetensors/weight_map.h"
#include "checkpoint/formats/torch_save/archive.h"
#include "checkpoint/formats/torch_save/format.h"
#include "checkpoint/formats/torch_save/reader.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::torch_save {
namespace {

std::pair<std::string, std::string> Split(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == path.npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

std::string_view WithoutExtension(std::string_view name) { return name.substr(0, name.rfind('.')); }

// R of "...R.pt", or of another suffix; -1 when it does not end so. `before` is what comes before R.
int64_t RankOf(std::string_view name, std::string_view* before, std::string_view suffix = ".pt") {
  if (!name.ends_with(suffix)) return -1;
  name.remove_suffix(suffix.size());
  size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  *before = name.substr(0, digits);
  name.remove_prefix(digits);
  constexpr size_t kMostDigits = 7;
  if (name.empty() || name.size() > kMostDigits) return -1;
  int64_t rank = 0;
  for (const char digit : name) rank = 10 * rank + (digit - '0');
  return rank;
}

// The files of one item, by rank.
using ByRank = std::map<int64_t, std::string>;

absl::Status Missing(std::string_view stem, int64_t rank, int64_t ranks, std::string_view suffix) {
  return absl::DataLossError(absl::StrCat("the file ", status::View(stem), rank, status::View(suffix),
                                          " is missing: there must be ", ranks, " of them, one for each rank"));
}

absl::Status CheckComplete(std::string_view stem, const ByRank& files, int64_t ranks, std::string_view suffix = ".pt") {
  for (int64_t rank = 0; rank < ranks; ++rank) {
    if (!files.contains(rank)) return Missing(stem, rank, ranks, suffix);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> IsArchive(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<io::ReadFile> file, io::ReadFile::Open(path, /*follow_links=*/true));
  std::string begin(static_cast<size_t>(std::min<int64_t>(file->bytes(), kMostBeginning)), '\0');
  RETURN_IF_ERROR(file->ReadAt(0, absl::MakeSpan(begin)));
  return IsBeginning(begin);
}

absl::StatusOr<Catalog> ReadFile(const std::string& path, const CatalogLimits& limits) {
  auto [root, name] = Split(path);
  Reader reader(kFormat, root, limits);
  RETURN_IF_ERROR(reader.AddFile(name, "", WithoutExtension(name)));
  if (catalog::ParsePartName(name)) {
    const absl::StatusOr<std::vector<std::string>> beside = io::ListDirectory(root);
    if (beside.ok()) reader.SetIncomplete(catalog::OtherParts(name, *beside));
  }
  return std::move(reader).Finish();
}

std::string BinSetOf(absl::Span<const std::string> names) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [](const std::string& name) { return name.ends_with(".bin.index.json"); });
  if (found != names.end()) return *found;
  constexpr std::string_view kSingle = "pytorch_model.bin";
  return std::find(names.begin(), names.end(), kSingle) == names.end() ? std::string() : std::string(kSingle);
}

absl::StatusOr<Catalog> ReadBinSet(const std::string& directory, const std::string& name, const CatalogLimits& limits) {
  Reader reader(kFormat, directory, limits);
  if (name.ends_with(".bin")) {
    RETURN_IF_ERROR(reader.AddFile(name, "", WithoutExtension(name)));
    return std::move(reader).Finish();
  }
  const std::string path = io::JoinPath(directory, name);
  ASSIGN_OR_RETURN(const safetensors::WeightMap map, safetensors::ReadWeightMap(path, limits));
  std::set<std::string> files;
  for (const auto& [tensor, file] : map) files.insert(file);
  for (const std::string& file : files) {
    if (absl::Status s = io::CheckRelativePath(file); !s.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", s.message()));
    }
    const absl::Status added = reader.AddFile(file, "", WithoutExtension(file));
    if (absl::IsNotFound(added)) {
      return absl::DataLossError(absl::StrCat(path, ": the file ", io::Shown(file), " is missing"));
    }
    if (!added.ok()) return added;
  }
  RETURN_IF_ERROR(reader.CheckIndex(path, map));
  return std::move(reader).Finish();
}

namespace {

// Of the names, `pytorch_model_fsdp_MODEL_rankR.bin` of all ranks, or those without `_MODEL`; the optimizer's files
// beside them are others. Errors as RankFilesOf has.
absl::StatusOr<std::vector<RankFile>> RankFilesOfAccelerate(absl::Span<const std::string> names) {
  constexpr std::string_view kModel = "pytorch_model_fsdp_", kRank = "rank", kSuffix = ".bin";
  std::map<std::string, ByRank, std::less<>> models;
  for (const std::string& name : names) {
    std::string_view before;
    const int64_t rank = RankOf(name, &before, kSuffix);
    if (rank < 0 || !before.starts_with(kModel) || !before.ends_with(kRank)) continue;
    if (!models[std::string(before)].emplace(rank, name).second) {
      return absl::InvalidArgumentError(absl::StrCat("two files of the same rank, one of them ", name));
    }
  }
  std::vector<RankFile> files;
  if (models.empty()) return files;
  const auto& [stem, by_rank] = *models.begin();
  if (models.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("files of ", models.size(), " models, ", stem, "*.bin and ",
                                                   models.rbegin()->first, "*.bin; keep those of one"));
  }
  RETURN_IF_ERROR(CheckComplete(stem, by_rank, by_rank.rbegin()->first + 1, kSuffix));
  for (const auto& [rank, name] : by_rank) files.push_back({name, "", rank});
  return files;
}

}  // namespace

absl::StatusOr<std::vector<RankFile>> RankFilesOf(absl::Span<const std::string> names) {
  ASSIGN_OR_RETURN(std::vector<RankFile> of_accelerate, RankFilesOfAccelerate(names));
  if (!of_accelerate.empty()) return of_accelerate;
  constexpr std::string_view kModel = "model_world_size_";
  constexpr std::string_view kRank = "_rank_";
  std::map<std::string, ByRank, std::less<>> items;
  bool others = false;  // a .pt of no rank
  for (const std::string& name : names) {
    std::string_view before;
    const int64_t rank = RankOf(name, &before);
    if (rank >= 0) {
      if (!items[std::string(before)].emplace(rank, name).second) {
        return absl::InvalidArgumentError(absl::StrCat("two files of the same rank, one of them ", name));
      }
    } else {
      others |= name.ends_with(".pt");
    }
  }
  std::vector<RankFile> files;
  for (const auto& [stem, by_rank] : items) {
    if (!stem.starts_with(kModel) || !stem.ends_with(kRank)) continue;
    const std::string with_size = stem.substr(0, stem.size() - kRank.size()) + ".pt";
    std::string_view before;
    const int64_t ranks = RankOf(with_size, &before);
    if (ranks < 1 || before != kModel) continue;
    if (!files.empty()) return absl::InvalidArgumentError("files of two world sizes; keep those of one");
    RETURN_IF_ERROR(CheckComplete(stem, by_rank, ranks));
    if (by_rank.rbegin()->first >= ranks) {
      return absl::DataLossError(absl::StrCat("the file ", by_rank.rbegin()->second, " is of no rank of ", ranks));
    }
    for (const auto& [rank, name] : by_rank) files.push_back({name, "", rank});
  }
  if (!files.empty() || others || items.empty()) return files;
  const int64_t ranks = static_cast<int64_t>(items.begin()->second.size());
  for (const auto& [stem, by_rank] : items) {
    // Files that are numbered otherwise are not ranks' files.
    if (stem.size() < 2 || !stem.ends_with('_') || by_rank.begin()->first != 0) return std::vector<RankFile>();
  }
  for (const auto& [stem, by_rank] : items) {
    RETURN_IF_ERROR(CheckComplete(stem, by_rank, std::max(ranks, by_rank.rbegin()->first + 1)));
    for (const auto& [rank, name] : by_rank) files.push_back({name, stem.substr(0, stem.size() - 1), rank});
  }
  return files;
}

absl::StatusOr<Catalog> ReadRankFiles(const std::string& directory, absl::Span<const RankFile> files,
                                      const CatalogLimits& limits) {
  Reader reader(kFormatOfRanks, directory, limits);
  for (const RankFile& file : files) {
    RETURN_IF_ERROR(reader.AddFile(file.name, file.prefix, file.prefix.empty() ? "value" : file.prefix, file.rank));
  }
  if (!files.empty() && !files[0].prefix.empty() && reader.dtensors() == 0 && reader.plain_tensors() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory, " has numbered files of torch.save without a DTensor in them, such as ", files[0].name,
                     ", which are hardly those of ranks; if one of them is a whole checkpoint, name that file"));
  }
  return std::move(reader).Finish();
}

}  // namespace reshard::torch_save
